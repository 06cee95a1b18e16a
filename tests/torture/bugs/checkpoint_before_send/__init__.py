"""The feed moves on before the events are sent."""

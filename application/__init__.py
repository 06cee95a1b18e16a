"""The use cases of the service: they reach the outside only through the outbox's ports."""

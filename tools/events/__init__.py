"""``python -m tools.events`` writes the contract of the events to ``docs/use/events/`` from the models."""

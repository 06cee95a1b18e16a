"""``python -m tools.events`` writes the contract of the events to ``docs/events/`` anew, from the models."""

"""``python -m tools.events`` writes the contract of the events to ``docs/use/events/`` anew, from the models."""

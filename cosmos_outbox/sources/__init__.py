"""Sources of another team's aggregates, for events that do not hold the whole state: its HTTP API, or none."""

"""Where another team's aggregates are read when an event alone does not tell enough: its HTTP API, or nowhere."""

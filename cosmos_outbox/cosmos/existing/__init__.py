"""A transaction in a team's own container stores all its documents and the events that they raise, or nothing."""

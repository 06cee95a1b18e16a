"""What a transaction of a team's own stores is its documents and the events that they raise, or nothing."""

"""A subscriber's store in one file, for a team that has no Cosmos DB: entries, what was set aside, and progress."""

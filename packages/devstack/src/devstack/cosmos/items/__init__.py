"""A write of items happens whole or not at all, under its conditions, inside one SQLite transaction."""

"""A function on the change feed."""

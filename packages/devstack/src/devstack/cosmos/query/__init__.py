"""Queries: parsed into our own tree, narrowed inside SQLite, and finished by an evaluator with the service's types."""

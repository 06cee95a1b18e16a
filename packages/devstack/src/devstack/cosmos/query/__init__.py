"""A query gives what the service's type rules say, or a 400 that names what is not supported: never a guess.

Queries are parsed into our own tree, narrowed inside SQLite, and finished by an evaluator.
"""

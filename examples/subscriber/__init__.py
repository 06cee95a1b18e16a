"""A mailing list: another team's service, which keeps what it needs of the people of examples/fastapi."""

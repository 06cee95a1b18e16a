"""People: a FastAPI program that stores, publishes and receives in one process."""

"""What a webhook's receiver has to do, to copy: FastAPI and SQLite, and nothing of the publisher."""

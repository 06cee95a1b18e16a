"""Each command of the Makefile does what it promises to a user."""

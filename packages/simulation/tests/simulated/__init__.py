"""The simulation: its loop, its store, its judge, and a few seeds of the contact service."""

"""Converts requests and responses between Azure Functions and the library."""

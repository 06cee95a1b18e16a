"""Keeps the OpenAPI document of the contact service in the docs."""

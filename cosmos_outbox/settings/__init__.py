"""Reads settings from the environment and from a service's declaration, with no names of another service."""

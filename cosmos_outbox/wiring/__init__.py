"""Builds a service from its declaration and its settings, and does nothing else: no connection is opened here."""

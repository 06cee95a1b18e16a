"""Builds what the roles of a service need from its declaration and its settings: opens nothing, and runs nothing."""

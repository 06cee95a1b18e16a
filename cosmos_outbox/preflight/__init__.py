"""Checks a deployment against its service's declaration; anything that could not be checked never counts as right."""

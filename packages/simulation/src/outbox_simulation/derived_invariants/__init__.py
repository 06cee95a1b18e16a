"""Checks what a service promises by its declaration alone, over the records of a simulated run."""

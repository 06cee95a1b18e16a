"""Imports: a file is uploaded, and a job that a queue starts reads it; its client asks how far it is."""

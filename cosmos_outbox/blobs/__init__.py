"""Blob Storage, where the archive of events is."""

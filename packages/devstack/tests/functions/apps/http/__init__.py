"""HTTP functions."""

"""Measures the outbox as ratios to the bare SDKs in the same run: a ratio is comparable between machines."""

"""Preflight against real services on loopback: a right deployment passes, and each wrong one is named."""

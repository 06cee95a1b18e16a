"""Reads and writes of a container: what came of a call is known, or told to be unknown; throttling is waited out."""

"""Reads and writes of a container: what came of a call is known, or reported as unknown; throttling is waited out."""

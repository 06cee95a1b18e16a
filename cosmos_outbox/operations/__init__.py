"""The calls of those who run a service: each reports a failure as it is, and loses no event."""

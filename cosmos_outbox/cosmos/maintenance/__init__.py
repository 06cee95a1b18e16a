"""Operates on containers as a whole: inspects them, and lists events. Each operation can be repeated."""

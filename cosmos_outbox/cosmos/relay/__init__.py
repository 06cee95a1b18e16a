"""Stores what the relay keeps: events that cannot be sent are parked with their marker, and sent as committed."""

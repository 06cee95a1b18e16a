"""Stores what the relay keeps: events that cannot be sent are parked with their block, and sent as committed."""

"""What the relay keeps: an event that cannot be sent is parked with its marker, and is sent as it was committed."""

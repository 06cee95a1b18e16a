"""A contact and its events are stored one after the other."""

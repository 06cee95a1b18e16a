"""Stores what a subscriber keeps: an entry, or a mark of an effect, is written only over the version that was read."""

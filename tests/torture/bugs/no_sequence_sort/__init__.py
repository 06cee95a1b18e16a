"""Events are sent in the order of the feed."""

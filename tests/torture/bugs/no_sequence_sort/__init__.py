"""Events leave in the order of the feed."""

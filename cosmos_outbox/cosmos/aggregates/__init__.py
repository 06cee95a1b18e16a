"""An aggregate, its events and its request's record are one transaction: stored together, or not at all."""

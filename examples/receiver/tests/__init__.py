"""Of the receiver."""

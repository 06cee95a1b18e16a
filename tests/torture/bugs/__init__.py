"""The deployed app with one mistake each, of those that implementations of this pattern really make."""

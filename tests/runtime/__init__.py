"""Microsoft's own Python runtime indexes and invokes the app with code that this project did not write."""

"""The app in Microsoft's own Python runtime, which indexes and invokes it by code that this project did not write."""

"""The test kit that users get: each promise of it, seen from their side."""

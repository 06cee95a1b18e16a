"""The order service: its aggregate alone, its subscribers in memory, and all of it on a local Azure."""

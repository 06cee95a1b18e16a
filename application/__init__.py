"""The contact directory: its entries, and how they are searched; no I/O."""

"""Code shared by the lists of every store: pages, and continuation tokens that only their own list accepts."""

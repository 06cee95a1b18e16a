"""Code shared by the write side, the relay and the subscriber side. It imports no other package of this repository."""

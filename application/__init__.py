"""The directory: what it keeps of the contacts, and how it is searched; no I/O."""

"""The real code under a simulated Azure in virtual time: one seed, one run, the same each time."""

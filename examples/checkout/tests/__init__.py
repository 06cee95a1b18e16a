"""The checkout service: its process in memory, on a local Azure, and under simulated faults."""

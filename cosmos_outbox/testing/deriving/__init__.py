"""What a service promises by its declaration alone, checked under simulated faults: see :mod:`.simulating`."""

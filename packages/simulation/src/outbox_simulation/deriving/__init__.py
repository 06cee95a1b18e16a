"""What a service promises by its declaration alone, checked over what a run under simulated faults left behind."""

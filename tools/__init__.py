"""For developers of this project, never deployed: the demo and the benchmarks."""

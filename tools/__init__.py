"""For developers of this project, never deployed: demo, benchmarks, the contract of the events, the package."""

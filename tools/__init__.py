"""For developers of this project, never deployed: demo, benchmarks, and the generator of the events' contract."""

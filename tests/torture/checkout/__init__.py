"""The process of ``examples/checkout`` under torture: ``python -m tests.torture.checkout --seconds 60 --seed 7``."""

"""Measurements, printed as rates and as ratios within one run."""

"""Each benchmark prints rates, and ratios within one run: a ratio is comparable between machines."""

"""Small models of the protocols, each searched through to the end: what no test of the code alone can do."""

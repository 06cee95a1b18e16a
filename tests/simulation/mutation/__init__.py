"""Mutation testing with the simulation as the judge: one place of the code is changed, and a rule should see it."""

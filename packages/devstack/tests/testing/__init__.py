"""The test kit that devstack ships: its fixtures, its Stack, and the example of the README."""

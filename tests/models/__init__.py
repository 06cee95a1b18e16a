"""Exhaustive searches over small models: every order of steps, crashes and old reads is tried, none is drawn."""

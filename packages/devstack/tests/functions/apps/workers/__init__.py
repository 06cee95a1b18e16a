"""Functions that say in which process they run, hang there, or end it."""

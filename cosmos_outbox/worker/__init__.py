"""Runs the work of the triggers and timers outside Functions: a worker and a function app are interchangeable."""

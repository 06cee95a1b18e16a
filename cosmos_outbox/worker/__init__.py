"""The work of the triggers and timers outside Functions: a worker and a function app can replace one another."""

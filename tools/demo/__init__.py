"""``python -m tools.demo`` shows the path of an event, step by step, on a stack of its own; nothing is left behind."""

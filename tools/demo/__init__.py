"""``python -m tools.demo``: the path of an event, step by step, on a stack of its own that leaves nothing behind."""

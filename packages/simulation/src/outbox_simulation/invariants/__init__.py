"""Checks whether a run kept the promises of the pattern, by its records alone.

``records``: the records; ``history``: the same, in order; ``language``: the meaning of a service's own events;
``checker.check``: every rule; ``violation``: the result of a rule.
"""

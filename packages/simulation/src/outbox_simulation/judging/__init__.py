"""Whether a run kept the promises of the pattern, by its records alone.

``records``: what is written down; ``history``: the same, put in order; ``language``: what a service's own events say;
``checker.check``: every rule; ``violation``: what a rule finds.
"""

"""Implements the subscriber's half of an outbox: it applies each change once, in order, and repairs its own entries.

The package knows no aggregate, no store and no broker; of this repository it imports the kernel alone.
``docs/internals/decisions/0017-inbox.md`` lists the rules by name; comments name them beside the lines that keep them.
"""

"""The other half of an outbox: a subscriber that applies each change once, in order, and heals itself.

The package knows no aggregate, no store and no broker. It imports nothing of this repository, so that it can be copied.
``docs/internals/decisions/0017-inbox.md`` lists the rules by name; the names stand beside the lines that keep them.
"""

"""Orders: a service of its own, with another aggregate on the same outbox (``docs/own-aggregate.md``)."""

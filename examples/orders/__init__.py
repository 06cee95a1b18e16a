"""Orders: a service of its own, with another aggregate on the same outbox (``docs/use/own-aggregate.md``)."""

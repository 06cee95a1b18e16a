"""The transactional outbox, for any aggregate: every committed event is published, in order, once for every reader.

The write half stores an aggregate and its events in one transaction (``aggregate``, ``event``, ``unit_of_work``,
``aggregates``), and a creation with a key once (``idempotency``, ``claims``). The relay half hands the stored events to
a broker and lets the change feed go on only when the broker has them, or a durable record says why it never can
(``feed``, ``relay``, ``delivery``, ``publisher``, ``parking_lot``, ``parking``, ``ttl_guard``). Both halves know ports,
not products: a store and a broker are adapters elsewhere. This package imports nothing of this project.
"""

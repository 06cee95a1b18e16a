"""The transactional outbox, for any aggregate: every committed event is published, in order, once for every reader.

The write half stores an aggregate and its events in one transaction (``aggregate``, ``event``, ``unit_of_work``,
``aggregates``), and a request with a key once (``idempotency``). The relay half sends the stored events to a broker and
lets the change feed continue only once the broker has them, or a durable record has the reason why it never will
(``feed``, ``relay``, ``publisher``, ``parking_lot``, ``parking``). Both halves depend on ports, not on products: stores
and brokers are adapters in other packages. Of this project it imports only ``kernel``.
"""

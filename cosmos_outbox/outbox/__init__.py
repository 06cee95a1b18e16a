"""The transactional outbox, for any aggregate: what is decided without a store or a broker.

The write half: an aggregate and its events (``aggregate``, ``event``), the choice of a list (``selection``). The relay
half: events of the feed (``feed``), blocked aggregates (``aggregate_block``), the port to a broker (``publisher``).
Stores and brokers are adapters in other packages. Of this project it imports only ``kernel``.
"""

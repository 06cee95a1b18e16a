"""A Cosmos DB (NoSQL API, REST) server for one machine, as strict as the service where an outbox relies on it.

Rooms, each importing only those to its right, and a test checks it::

    server, dispatch ──> feed, items ──> query ──> resources ──> storage, wire

``errors`` and ``json_text`` are for all of them. A request goes from ``server`` (the socket) to ``dispatch``
(authorised, routed), and from there to one operation in a room, which reads and writes through ``storage``.
"""

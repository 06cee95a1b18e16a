"""A Cosmos DB (NoSQL API, REST) server for one machine, as strict as the service where an outbox relies on it.

Layers, each importing only those after it: ``cli``, ``server`` (sockets), ``dispatch`` and ``routes`` (wire), the
operations (``items``, ``batch``, ``feed``, ...), ``store`` and ``schema`` (SQLite).
"""

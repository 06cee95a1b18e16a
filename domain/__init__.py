"""The business rules in pure Python, independent of HTTP, Cosmos DB, Service Bus and the system's clock.

The domain uses only the outbox's aggregate and event.
"""

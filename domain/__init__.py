"""The business rules in pure Python: nothing here knows HTTP, Cosmos DB, Service Bus or the system's clock.

The domain uses the outbox's aggregate and event, and no other part of the outbox.
"""

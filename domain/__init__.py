"""The business, as pure Python: nothing here knows HTTP, Cosmos DB, Service Bus or the clock on the wall.

Of the outbox it uses the aggregate and the event, nothing else.
"""

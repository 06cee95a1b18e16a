"""The business, as pure Python: nothing here knows HTTP, Cosmos DB, Service Bus or the clock on the wall."""

"""The adapters: everything that knows Cosmos DB, Service Bus, HTTP or the environment."""

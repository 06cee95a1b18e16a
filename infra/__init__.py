"""The adapters: only this package knows Cosmos DB, Service Bus, HTTP and the environment."""

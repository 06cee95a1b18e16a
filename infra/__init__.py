"""Holds the adapters: only this package uses Cosmos DB, Service Bus, HTTP and the environment."""

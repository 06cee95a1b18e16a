"""The store: Cosmos DB through the asynchronous SDK. No other package imports ``azure.cosmos``."""

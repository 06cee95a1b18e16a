"""The Cosmos DB: over real sockets, through the SDK and by raw request."""

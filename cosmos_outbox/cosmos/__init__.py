"""The adapters of Cosmos DB: beside the change feed processor, only this folder knows the SDK of the store."""

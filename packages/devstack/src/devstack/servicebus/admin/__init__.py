"""The management API of a namespace: Atom over HTTP, as the Azure SDKs' administration clients speak it."""

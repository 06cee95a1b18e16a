"""The contract of a service with readers of its events: JSON Schemas and an AsyncAPI document."""

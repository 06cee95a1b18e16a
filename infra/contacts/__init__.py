"""The contact's own part of the adapters: its HTTP form, and the names in its documents and messages."""

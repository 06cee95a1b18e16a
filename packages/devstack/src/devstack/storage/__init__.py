"""Blob and Queue Storage are Microsoft's own Azurite: what is stored, and what it answers, is its word and not ours."""

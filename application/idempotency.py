"""A key that a caller made up decides the id of the contact that its request creates.

The record of the request has to be in the contact's own partition, to be stored in one transaction with it; with the id
derived from the key, a repetition knows where to look. A key whose record has expired while its contact is still there
moves on to the next generation.
"""

import hashlib
from uuid import UUID, uuid5

NAMESPACE = UUID("5b1d2f0e-7c1a-4b52-9d0c-6f6d0c0a7a11")
"""Never change it: repetitions of requests under way would create second contacts."""

GENERATIONS = 8
"""How many contacts one key can create, one after the expiry of the other."""


def id_from_key(key: str, generation: int) -> UUID:
    """The id of the contact that a key's request creates."""
    return uuid5(NAMESPACE, f"{generation}:{key}")


def digest(text: str) -> str:
    """Tells texts apart without keeping them: keys and bodies may hold personal data."""
    return hashlib.sha256(text.encode()).hexdigest()

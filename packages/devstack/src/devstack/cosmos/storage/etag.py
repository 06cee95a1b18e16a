"""An ETag changes with every write of its resource and is never used twice."""

import random
import uuid

ANY = "*"


def new_etag(chance: random.Random) -> str:
    """Quoted, as HTTP has it and as the service returns it."""
    return f'"{new_id(chance)}"'


def new_id(chance: random.Random) -> uuid.UUID:
    """A version 4 UUID."""
    return uuid.UUID(int=chance.getrandbits(128), version=4)


def matches(condition: str, etag: str) -> bool:
    """Whether an ``If-Match`` or ``If-None-Match`` value names this ETag. Clients send it with or without quotes."""
    return condition == ANY or condition.strip('"') == etag.strip('"')

"""An ETag changes with every write of its resource and is never used twice."""

import uuid

ANY = "*"


def new_etag() -> str:
    """Quoted, as HTTP has it and as the service returns it."""
    return f'"{uuid.uuid4()}"'


def matches(condition: str, etag: str) -> bool:
    """Whether an ``If-Match`` or ``If-None-Match`` value names this ETag. Clients send it with or without quotes."""
    return condition == ANY or condition.strip('"') == etag.strip('"')

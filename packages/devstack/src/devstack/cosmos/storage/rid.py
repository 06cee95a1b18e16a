"""Resource ids (``_rid``): a child's id begins with the bytes of its parent's, and none is ever used twice.

Clients know a resource id from a name by its shape (base64 with ``-`` for ``/``, four bytes for a database) and detect
by it that a container was deleted and made again under the same name.
"""

import base64
import random


def new_database_rid(chance: random.Random) -> str:
    return _text(chance.randbytes(4))


def new_container_rid(database_rid: str, chance: random.Random) -> str:
    """Eight bytes; the first bit of the container's own four is set, as the service has it."""
    own = bytearray(chance.randbytes(4))
    own[0] |= 0x80
    return _text(_bytes(database_rid) + bytes(own))


def child_rid(container_rid: str, number: int, *, marker: int = 0) -> str:
    """The id of the ``number``-th document (or, with a ``marker``, of a resource of another kind) of a container."""
    return _text(_bytes(container_rid) + number.to_bytes(7, "little") + bytes([marker]))


def child_number(container_rid: str, rid: str) -> int | None:
    """The number of the container's document that has this id; None for anything else."""
    try:
        data = _bytes(rid)
    except ValueError:
        return None
    if len(data) != 16 or data[:8] != _bytes(container_rid) or data[15]:
        return None
    return int.from_bytes(data[8:15], "little")


def new_offer_rid(chance: random.Random) -> str:
    return _text(chance.randbytes(3))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode().replace("/", "-")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "/"))

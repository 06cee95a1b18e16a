"""Event documents with anything in them: what a relay may find in a container that others write to as well."""

import random
from typing import Any

from tests.support.feed import event_document

INTEGERS = [
    n + more for n in (0, 2**7, 2**31, 2**32, 2**53, 2**63, 2**64, 10**25, 10**400) for more in (-1, 0, 1)
]
TIMES: list[Any] = [
    f"{day}T{time}{zone}"
    for day in ("0001-01-01", "9999-12-31", "2026-03-01", "1969-12-31", "2024-02-29", "2023-02-29")
    for time in ("00:00:00", "23:59:59.9999999", "24:00:00", "12:00:60")
    for zone in ("", "Z", "+05:00", "-05:00", "+23:59", "-23:59", "+24:00")
]
TEXTS: list[Any] = [
    "", " ", "x", "\0", "a\nb", "\ud800", "a\udfffb", "\u2028", "é" * 128, "😀" * 64, "x" * 128, "x" * 129, "é" * 1024,
    "a/b\\c?d#e", "/Date(1714557600000)/", "/Date(999999999999999)/", "00000000-0000-4000-8000-000000000000",
    "fence", "request-1", "domainEvent", "null", "1e400", "x" * 40_000, "é" * 40_000, "x" * 300_000,
]  # fmt: skip
FLOATS: list[Any] = [0.0, -0.0, 0.1, 1.0, 2.0, -2.5, 1e16, 1e300, -1e300, 5e-324]
FIELDS = [
    "id", "partitionKey", "aggregateType", "aggregateId", "data", "digest", "schemaVersion", "ttl", "_ts", "_lsn",
]  # fmt: skip
INNER = [
    "id", "contactId", "orderId", "action", "sequence", "createdAt", "correlationId", "traceparent", "tracestate", "x",
]  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"x": value}
    return value


def any_value(rng: random.Random, *, depth: int) -> Any:
    """JSON of every type, mostly such as has made something raise somewhere. ``depth``: how deep it may be nested."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice(INTEGERS) * rng.choice([1, 1, -1])
    if kind == 2:
        return nested(rng.choice([1, depth // 2, depth]))
    if kind == 3:
        return [rng.choice(TEXTS[:20]), rng.choice(INTEGERS)]
    if kind == 4:
        return {rng.choice(TEXTS[:20]): rng.choice(TEXTS[:20]), "n": rng.choice(INTEGERS)}
    return rng.choice([TEXTS, TIMES, FLOATS][kind - 5])


def any_document(rng: random.Random, contact: str, sequence: int, *, depth: int = 120) -> dict[str, Any]:
    """A valid event document of a contact with a few of its fields replaced by anything, or left out."""
    document = event_document(contact, sequence)
    if rng.random() < 0.5:  # then its place is by LSN, time and id
        del document["data"]["sequence"]
    for level, names in ((document["data"], INNER), (document, FIELDS)):
        for name in rng.sample(names, rng.choice([0, 1, 1, 2])):
            if rng.random() < 0.2:
                level.pop(name, None)
            else:
                level[name] = rng.choice(TIMES) if name == "createdAt" else any_value(rng, depth=depth)
    return document


def drawn(seed: int | None) -> int:
    """Drawn inside the test: all test processes have to collect the same tests."""
    if seed is None:
        seed = random.SystemRandom().randrange(2**32)
        print(f"seed {seed}")
    return seed

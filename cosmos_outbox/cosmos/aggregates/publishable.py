"""Nothing is stored that the feed's host cannot read, the store would change, or readers of JSON read differently.

The host is the Cosmos DB trigger of Azure Functions, which reads documents with Newtonsoft.Json (azure-functions-host
issue 7114).
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths, at
from cosmos_outbox.outbox.canonical import check, is_a_double
from cosmos_outbox.outbox.errors import Unpublishable

_NO_DATE = re.compile(r"9999-12-31T24:|/Date\((-?\d+)")
_MILLISECONDS = range(-62_135_596_800_000, 253_402_300_800_000)
"""The moments that a .NET DateTime can hold, in milliseconds since 1970."""
_LIKE_A_DATE = re.compile(r"\d{4}-\d\d-\d\dT|/Date\(")
"""What Newtonsoft.Json takes for a date (azure-functions-host issue 7114)."""


MOST_LEVELS = 62
"""The levels of objects and lists in a document.

.NET's readers of JSON stop at 64 (``MaxDepth`` of System.Text.Json and, from 13.0.1 on, of Newtonsoft.Json), and a page
of the feed puts two around each document (azure-functions-dotnet-worker issue 1226).
"""


def check_feed_can_be_read(what: str, data: Any, *, around: int) -> None:
    """Raise Unpublishable for what no reader of the change feed's page would get past.

    ``around``: the levels of the document around ``data``. .NET raises for JSON that is nested too deeply, and
    Newtonsoft.Json for a text that looks like a date outside .NET's calendar. The trigger then reads the same page
    without end, and no function ever sees the document.
    """
    if _levels(data) + around > MOST_LEVELS:
        raise Unpublishable(
            f"{what} is nested deeper than {MOST_LEVELS - around} levels, which the change feed's host cannot read: "
            "make it flatter, or store the inner part as text"
        )
    for text in _values(data):
        match = _NO_DATE.match(text) if isinstance(text, str) else None
        if match and (match[1] is None or int(match[1]) not in _MILLISECONDS):
            raise Unpublishable(
                f"a text of {what} looks like a date outside the calendar, which the change feed's "
                "host cannot read: put something before it"
            )


def _levels(data: Any) -> int:
    """How many objects and lists are inside each other at the deepest place; one more than allowed ends the search."""
    levels, level = 0, [data]
    while (
        level := [each for each in level if isinstance(each, dict | list | tuple)]
    ) and levels <= MOST_LEVELS:
        levels += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return levels


def _values(data: Any) -> Iterator[Any]:
    """Each name and each value in JSON that is neither an object nor a list."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        else:
            yield value


def check_storable(what: str, state: Any, *, around: int = 1) -> None:
    """Raise Unpublishable for a state that the store would refuse or change, or the feed could not be read past.

    ``around``: the levels of the document around the state. Cosmos DB keeps numbers as doubles. An integer that a
    double holds passes however large it is: one that was stored before has become such a one, and must not lock its
    aggregate.
    """
    check_feed_can_be_read(what, state, around=around)
    for value in _values(state):
        if isinstance(value, str) and not _is_unicode(value):
            raise Unpublishable(
                f"a text of {what} holds half of a surrogate pair, which is no Unicode: replace it"
            )
        if isinstance(value, int) and not is_a_double(value):
            raise Unpublishable(
                f"an integer of {what} is beyond 2^53, where the store keeps another number: write it as text"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise Unpublishable(f"a number of {what} is not finite: replace it")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_publishable(item: Mapping[str, Any], paths: PartitionKeyPaths = PARTITION_KEY) -> None:
    """Raise Unpublishable for an event document that not every reader would read as it was written."""
    check_feed_can_be_read(item["aggregateType"], item["data"], around=1)
    texts = [("aggregateId", item.get("aggregateId")), *((path[1:], at(item, path)) for path in paths.paths)]
    for name, text in texts:
        if isinstance(text, str) and _LIKE_A_DATE.match(text):
            raise Unpublishable(
                f"the {name} of a {item['aggregateType']} looks like a date, which the change feed's host would "
                "rewrite: put something before it"
            )
    try:
        check(item)
    except ValueError as fault:
        raise Unpublishable(f"an event of {item['aggregateType']} cannot be published: {fault}") from None

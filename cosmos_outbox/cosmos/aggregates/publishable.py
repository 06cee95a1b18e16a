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


def check_feed_can_be_read(aggregate_type: str, data: Any) -> None:
    """Raise Unpublishable for a text that no reader of the change feed's page would get past.

    Newtonsoft.Json raises for a text that looks like a date outside .NET's calendar. The trigger then reads the same
    page without end, and no function ever sees the document.
    """
    for text in _values(data):
        match = _NO_DATE.match(text) if isinstance(text, str) else None
        if match and (match[1] is None or int(match[1]) not in _MILLISECONDS):
            raise Unpublishable(
                f"a text of {aggregate_type} looks like a date outside the calendar, which the change feed's "
                "host cannot read: put something before it"
            )


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


def check_storable(aggregate_type: str, state: Any) -> None:
    """Raise Unpublishable for a state that the store would refuse or change, or the feed could not be read past.

    Cosmos DB keeps numbers as doubles. An integer that a double holds passes however large it is: one that was stored
    before has become such a one, and must not lock its aggregate.
    """
    check_feed_can_be_read(aggregate_type, state)
    for value in _values(state):
        if isinstance(value, int) and not is_a_double(value):
            raise Unpublishable(
                f"an integer of {aggregate_type} is beyond 2^53, where the store keeps another number: write it as text"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise Unpublishable(f"a number of {aggregate_type} is not finite: replace it")


def check_publishable(item: Mapping[str, Any], paths: PartitionKeyPaths = PARTITION_KEY) -> None:
    """Raise Unpublishable for an event document that not every reader would read as it was written."""
    check_feed_can_be_read(item["aggregateType"], item["data"])
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

"""Which part of a container a read is about: one partition key, a range of effective partition keys, or all of it.

A client that names a physical partition by an id it no longer has, because it was split, gets 410/1002 and must read
the list of partitions again.
"""

from dataclasses import dataclass
from typing import Any

from devstack.cosmos.protocol.errors import PARTITION_GONE, CosmosError, bad_request
from devstack.cosmos.storage.epk import FIRST, LAST
from devstack.cosmos.storage.model import Container, Range
from devstack.cosmos.storage.partition_key import mismatch, parse_header, stored_form
from devstack.cosmos.wire.messages import Request


@dataclass(frozen=True)
class Scope:
    """``ranges`` in the order of their keys. ``key`` is the stored form of the one partition key, if it is one;
    ``minimum`` and ``maximum`` bound the effective partition keys. ``named``: the client named the partition or the
    key.
    """

    ranges: tuple[Range, ...]
    key: str | None = None
    minimum: str = FIRST
    maximum: str = LAST
    named: bool = True

    def single_range(self) -> "Scope":
        """Itself. Raises 400 when it is more than one physical partition."""
        if len(self.ranges) != 1:
            raise bad_request("The request must name one partition key range: the container has several.")
        return self

    def check_named(self, request: Request) -> None:
        """Raises 400 for a query over all partitions that the client did not allow to be one."""
        if not self.named and not request.flag("x-ms-documentdb-query-enablecrosspartition"):
            raise bad_request(
                "Cross partition query is required but disabled. Please set"
                " x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise"
                " your query to avoid this exception."
            )

    def sql(self) -> tuple[str, tuple[Any, ...]]:
        """A condition on the columns of items, besides their physical partition, and its arguments."""
        if self.key is not None:
            return "pk = ?", (self.key,)
        if self.minimum == FIRST and self.maximum == LAST:
            return "1", ()
        return "epk >= ? AND epk < ?", (self.minimum, self.maximum)


def read_scope(container: Container, request: Request) -> Scope:
    """What the headers say. Raises 400, and 410 for a partition that was split."""
    key = request.headers.get("x-ms-documentdb-partitionkey")
    number = request.headers.get("x-ms-documentdb-partitionkeyrangeid")
    start, end = request.headers.get("x-ms-start-epk"), request.headers.get("x-ms-end-epk")
    if key is not None:
        return _of_key(container, key)
    if number is None and start is None:
        return Scope(container.ranges, named=False)
    minimum, maximum = _bounds(start, end)
    ranges = tuple(part for part in container.ranges if part.minimum < maximum and minimum < part.maximum)
    if number is not None:
        ranges = (_named(container, number),)
    if len(ranges) != 1:
        raise _gone()
    return Scope(ranges, None, max(minimum, ranges[0].minimum), min(maximum, ranges[0].maximum))


def _of_key(container: Container, header: str) -> Scope:
    components = parse_header(header)
    if not components:
        return Scope(container.ranges, named=False)
    if len(components) > len(container.key.paths):
        raise mismatch()
    effective = container.key.effective(components)
    if len(components) < len(container.key.paths):  # a prefix of a hierarchical key
        end = effective + LAST
        ranges = tuple(part for part in container.ranges if part.minimum < end and effective < part.maximum)
        return Scope(ranges, None, effective, end)
    return Scope((container.range_of(effective),), stored_form(components))


def _named(container: Container, number: str) -> Range:
    # Some clients send the container's _rid before the id: "<rid>,<id>".
    text = number.rpartition(",")[2].strip()
    part = container.range_by_id(int(text)) if text.isdecimal() else None
    if part is None:
        raise _gone()
    return part


def _bounds(start: str | None, end: str | None) -> tuple[str, str]:
    minimum = FIRST if start is None else start.upper()
    maximum = LAST if end is None else end.upper()
    if minimum > maximum:
        raise bad_request("The range of effective partition keys is empty.")
    # One key, written as a range that begins and ends with it.
    return (minimum, maximum + "0") if minimum == maximum else (minimum, maximum)


def _gone() -> CosmosError:
    return CosmosError(
        PARTITION_GONE,
        "The requested partition key range is gone: it was split. Read the partition key ranges again.",
    )

"""Databases, containers and their physical partitions as values: nothing here changes after it was read."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from devstack.cosmos.storage.epk import Components, effective_partition_key


@dataclass(frozen=True)
class PartitionKeyDefinition:
    """``paths`` are split into their segments; more than one path means a hierarchical key."""

    paths: tuple[tuple[str, ...], ...]
    kind: str
    version: int

    def effective(self, components: Components) -> str:
        return effective_partition_key(components, kind=self.kind, version=self.version)


@dataclass(frozen=True)
class Range:
    """One physical partition: the effective partition keys in ``[minimum, maximum)``."""

    id: int
    minimum: str
    maximum: str
    parents: tuple[int, ...]

    def holds(self, effective_partition_key: str) -> bool:
        return self.minimum <= effective_partition_key < self.maximum


@dataclass(frozen=True)
class Database:
    number: int
    id: str
    rid: str
    etag: str
    timestamp: int

    @property
    def link(self) -> str:
        return f"dbs/{self.id}"

    @property
    def self_link(self) -> str:
        return f"dbs/{self.rid}/"


@dataclass(frozen=True)
class Container:
    """``properties`` are the caller's (partition key, indexing policy, ...), without the system's."""

    number: int
    database: Database
    id: str
    rid: str
    etag: str
    timestamp: int
    properties: Mapping[str, Any]
    key: PartitionKeyDefinition
    ranges: tuple[Range, ...]
    ranges_version: int
    rows: str = ""
    """The SQL of what a read sees instead of the table, when replicas that lag answer it."""

    @property
    def link(self) -> str:
        return f"{self.database.link}/colls/{self.id}"

    @property
    def self_link(self) -> str:
        return f"{self.database.self_link}colls/{self.rid}/"

    @property
    def items(self) -> str:
        """The name of the table that holds the items."""
        return f"items_{self.number}"

    @property
    def seen(self) -> str:
        """What a read selects from."""
        return self.rows or self.items

    @cached_property
    def default_ttl(self) -> int | None:
        """Seconds; -1: items do not expire unless they say so; None: items never expire."""
        value: int | None = self.properties.get("defaultTtl")
        return value

    def range_of(self, effective_partition_key: str) -> Range:
        return next(part for part in self.ranges if part.holds(effective_partition_key))

    def range_by_id(self, number: int) -> Range | None:
        return next((part for part in self.ranges if part.id == number), None)

"""What operators call the aggregates of a service follows from their types: in paths, in JSON, in commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from cosmos_outbox.outbox.aggregate import Aggregate


@dataclass(frozen=True)
class PathNames:
    """The names of one type of aggregate in the operators' paths and JSON."""

    aggregate_type: str
    path: str
    """The part of the path before an aggregate's id, such as ``accounts``."""
    owner: str
    """The field with an aggregate's id, such as ``accountId``."""
    count: str
    """The field with the number of parked aggregates of the type, such as ``parkedAccounts``."""


def names_of(kind: type[Aggregate[Any]]) -> PathNames:
    """The names that follow from an aggregate's type."""
    return names_of_type(kind.aggregate_type, kind.plural)


def names_of_type(aggregate_type: str, plural: str = "") -> PathNames:
    """The same of a type that has no class here; without a plural it is the type with an s."""
    name = to_camel(aggregate_type.replace("-", "_"))
    plural = plural or f"{name}s"
    return PathNames(aggregate_type, plural, f"{name}Id", f"parked{plural[0].upper()}{plural[1:]}")


def owners(aggregate: tuple[str, str] | None, names: Sequence[PathNames]) -> Mapping[str, str | None]:
    """The aggregate's id, under the name of its type; the fields of the other types are null."""
    kind, aggregate_id = aggregate or (None, None)
    return {each.owner: aggregate_id if kind == each.aggregate_type else None for each in names}

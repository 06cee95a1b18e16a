"""A path names exactly one resource or feed; a path that names none is refused."""

import enum
import functools
from dataclasses import dataclass
from urllib.parse import unquote

from devstack.cosmos.protocol.errors import CosmosError, bad_request, no_such_resource, unsupported


class Kind(enum.Enum):
    ACCOUNT = enum.auto()
    DATABASES = enum.auto()
    DATABASE = enum.auto()
    CONTAINERS = enum.auto()
    CONTAINER = enum.auto()
    RANGES = enum.auto()
    ITEMS = enum.auto()
    ITEM = enum.auto()
    PARTITION_KEY = enum.auto()
    SCRIPTS = enum.auto()
    SCRIPT = enum.auto()
    CONFLICTS = enum.auto()
    CONFLICT = enum.auto()
    OFFERS = enum.auto()
    OFFER = enum.auto()


@dataclass(frozen=True)
class Target:
    """``type`` and ``link`` are what a client signs: the resource type, and the parent's link for a feed."""

    kind: Kind
    type: str
    link: str
    database: str = ""
    container: str = ""
    item: str = ""


_NOT_SERVED = {
    "users": "users and permissions",
    "permissions": "users and permissions",
    "clientencryptionkeys": "client encryption keys",
    "attachments": "attachments",
}


@functools.lru_cache(maxsize=1024)
def parse_path(raw_path: str) -> Target:
    """The target of an undecoded path. Raises 400 and 404."""
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    match parts:
        case [""]:
            return Target(Kind.ACCOUNT, "", "")
        case ["dbs"]:
            return Target(Kind.DATABASES, "dbs", "")
        case ["offers"]:
            return Target(Kind.OFFERS, "offers", "")
        case ["offers", rid]:
            return Target(Kind.OFFER, "offers", rid.lower(), item=rid)
        case ["dbs", database, *rest] if database:
            return _inside_database(database, rest)
        case _:
            raise no_such_resource()


def _inside_database(database: str, rest: list[str]) -> Target:
    link = f"dbs/{database}"
    match rest:
        case []:
            return Target(Kind.DATABASE, "dbs", link, database)
        case ["colls"]:
            return Target(Kind.CONTAINERS, "colls", link, database)
        case ["colls", container, *inner] if container:
            return _inside_container(database, container, inner)
        case _:
            raise _not_served(rest)


def _inside_container(database: str, container: str, rest: list[str]) -> Target:  # noqa: PLR0911 - a case for each path
    link = f"dbs/{database}/colls/{container}"
    match rest:
        case []:
            return Target(Kind.CONTAINER, "colls", link, database, container)
        case ["docs"]:
            return Target(Kind.ITEMS, "docs", link, database, container)
        case ["pkranges"]:
            return Target(Kind.RANGES, "pkranges", link, database, container)
        case ["operations", "partitionkeydelete"]:
            return Target(Kind.PARTITION_KEY, "colls", link, database, container)
        case ["conflicts"]:
            return Target(Kind.CONFLICTS, "conflicts", link, database, container)
        case ["conflicts", conflict] if conflict:
            return Target(
                Kind.CONFLICT, "conflicts", f"{link}/conflicts/{conflict}", database, container, conflict
            )
        case [("sprocs" | "triggers" | "udfs") as kind]:
            return Target(Kind.SCRIPTS, kind, link, database, container)
        case [("sprocs" | "triggers" | "udfs") as kind, script] if script:
            return Target(Kind.SCRIPT, kind, f"{link}/{kind}/{script}", database, container, script)
        case ["docs", item] if item:
            return Target(Kind.ITEM, "docs", f"{link}/docs/{item}", database, container, item)
        case _:
            raise _not_served(rest)


def _not_served(rest: list[str]) -> CosmosError:
    named = next((name for part, name in _NOT_SERVED.items() if part in rest[:3]), None)
    return unsupported(named) if named else bad_request("The request path names no resource of the service.")

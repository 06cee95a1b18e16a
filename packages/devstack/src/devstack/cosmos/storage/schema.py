"""The tables. An item's system properties are columns and its body is the client's JSON without them."""

from devstack.sqlite_file import Format

_TABLES = """
CREATE TABLE databases (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, rid TEXT NOT NULL UNIQUE,
    etag TEXT NOT NULL, timestamp INTEGER NOT NULL
);
CREATE TABLE containers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    database INTEGER NOT NULL REFERENCES databases (number) ON DELETE CASCADE,
    id TEXT NOT NULL, rid TEXT NOT NULL UNIQUE, etag TEXT NOT NULL, timestamp INTEGER NOT NULL,
    properties TEXT NOT NULL, ranges_version INTEGER NOT NULL DEFAULT 1, UNIQUE (database, id)
);
CREATE TABLE ranges (
    container INTEGER NOT NULL REFERENCES containers (number) ON DELETE CASCADE,
    id INTEGER NOT NULL, minimum TEXT NOT NULL, maximum TEXT NOT NULL, parents TEXT NOT NULL,
    lsn INTEGER NOT NULL, online INTEGER NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (container, id)
);
CREATE TABLE scripts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    container INTEGER NOT NULL REFERENCES containers (number) ON DELETE CASCADE,
    kind TEXT NOT NULL, id TEXT NOT NULL, etag TEXT NOT NULL, timestamp INTEGER NOT NULL, body TEXT NOT NULL,
    UNIQUE (container, kind, id)
);
CREATE TABLE offers (
    number INTEGER PRIMARY KEY AUTOINCREMENT, rid TEXT NOT NULL UNIQUE, resource_rid TEXT NOT NULL UNIQUE,
    resource_link TEXT NOT NULL, content TEXT NOT NULL, etag TEXT NOT NULL, timestamp INTEGER NOT NULL
);
"""
FORMAT = Format("cosmos", "cosmos.db", application_id=0x636F736D, version=1, tables=_TABLES)


def items_table(name: str) -> tuple[str, ...]:
    """The statements that make the table of one container's items.

    ``expires`` is the last second in which the item is visible; ``shuffle`` is the order within a transaction, chosen
    at random because the service promises none.
    """
    return (
        f"""CREATE TABLE {name} (
            number INTEGER PRIMARY KEY AUTOINCREMENT, range INTEGER NOT NULL, epk TEXT NOT NULL, pk TEXT NOT NULL,
            id TEXT NOT NULL, lsn INTEGER NOT NULL, shuffle INTEGER NOT NULL, timestamp INTEGER NOT NULL,
            etag TEXT NOT NULL, ttl INTEGER, expires INTEGER, body TEXT NOT NULL
        )""",
        f"CREATE UNIQUE INDEX {name}_key ON {name} (pk, id)",
        f"CREATE INDEX {name}_scan ON {name} (range)",
        f"CREATE INDEX {name}_feed ON {name} (range, lsn, shuffle)",
        f"CREATE INDEX {name}_expiry ON {name} (expires) WHERE expires IS NOT NULL",
    )

"""All events of an aggregate are in one session, whichever process sends them, and the session tells of how many it is.

A session is a bucket of aggregates, since opening one costs a subscriber half a second and a connection. The bucket is
a stable hash of the aggregate's type and id; the number of buckets stands in the session's id, so that a change of it
shows, and no bucket of one number is taken for a bucket of another.
"""

import hashlib
import json

from cosmos_outbox.kernel.aggregate_key import AggregateKey


def session_of(aggregate: AggregateKey, buckets: int | None) -> str:
    """The id of the session that an aggregate's events are sent in; ``buckets`` None: it has one of its own."""
    if buckets is None:
        return aggregate.id
    # As JSON: no type and id are spelled like another type and id.
    digest = hashlib.blake2b(json.dumps(aggregate).encode(), digest_size=8).digest()
    bucket = int.from_bytes(digest) % buckets
    return f"{buckets}-{bucket:0{len(str(buckets - 1))}d}"

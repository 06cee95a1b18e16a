"""Converts feed ranges and change feed continuations to the SDK's format and back; no other module knows it.

A lease stores only the service's ETag (an LSN in quotes). The SDK takes and returns base64 JSON with that ETag and the
range; the layout of that JSON is not documented, so a test pins it against the installed SDK.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cosmos_changefeed.errors import LeasesUnusable
from cosmos_changefeed.lease import EpkRange

_QUOTED_LSN = re.compile(r'"\d+"')


@dataclass(frozen=True)
class Position:
    """The LSN up to which a range was read."""

    feed_range: EpkRange
    lsn: str
    """The LSN in quotes, as in the service's ETag."""


def sdk_feed_range(feed_range: EpkRange) -> dict[str, Any]:
    """Returns the range in the format that ``query_items_change_feed`` takes as ``feed_range``."""
    return {"Range": _bounds(feed_range)}


def parse_sdk_feed_range(value: Mapping[str, Any]) -> EpkRange:
    """Returns the range in a value that ``read_feed_ranges`` yields."""
    return _parse_bounds(value["Range"])


def to_sdk(position: Position, container_rid: str) -> str:
    """Returns the ``continuation`` for ``query_items_change_feed``. Raises LeasesUnusable if the LSN is not quoted."""
    if not _QUOTED_LSN.fullmatch(position.lsn):
        raise LeasesUnusable(
            f"a lease holds the continuation {position.lsn!r}, which is no quoted LSN: use another lease prefix"
        )
    bounds = _bounds(position.feed_range)
    state = {
        "v": "v2",
        "containerRid": container_rid,
        "mode": "LatestVersion",
        # The SDK ignores it, since there is a token.
        "startFrom": {"Type": "Beginning"},
        "continuation": {
            "v": "v2",
            "rid": container_rid,
            "continuation": [{"token": position.lsn, "range": bounds}],
            "Range": bounds,
        },
    }
    return base64.b64encode(json.dumps(state).encode()).decode()


def from_sdk(token: str) -> list[Position]:
    """Returns the positions in a continuation of the SDK: several after the range was split."""
    state = json.loads(base64.b64decode(token))
    return [
        Position(_parse_bounds(child["range"]), child["token"])
        for child in state["continuation"]["continuation"]
    ]


def _bounds(feed_range: EpkRange) -> dict[str, Any]:
    return {"min": feed_range.min, "max": feed_range.max, "isMinInclusive": True, "isMaxInclusive": False}


def _parse_bounds(bounds: Mapping[str, Any]) -> EpkRange:
    return EpkRange(bounds["min"], bounds["max"])

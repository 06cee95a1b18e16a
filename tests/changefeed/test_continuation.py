"""The installed azure-cosmos still spells a continuation in the undocumented way on which the package relies."""

import base64
import json

import pytest
from azure.cosmos._change_feed.change_feed_state import ChangeFeedState, ChangeFeedStateV2

from cosmos_changefeed.continuation import Position, from_sdk, parse_sdk_feed_range, sdk_feed_range, to_sdk
from cosmos_changefeed.errors import LeasesUnusable
from cosmos_changefeed.lease import EpkRange

RID = "qicAAPEw9bE="
HALF = EpkRange("", "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF")


def _state_of(continuation: str) -> ChangeFeedStateV2:
    """What the SDK makes of a continuation before it builds a request from it."""
    state = ChangeFeedState.from_json("dbs/d/colls/c", RID, {"continuationFeedRange": continuation})
    assert isinstance(state, ChangeFeedStateV2)
    return state


def test_the_sdk_reads_from_the_lsn_that_the_lease_holds() -> None:
    state = _state_of(to_sdk(Position(HALF, '"42"'), RID))
    headers: dict[str, str] = {}

    state.set_start_from_request_headers(headers)

    assert headers == {"If-None-Match": '"42"'}


def test_the_sdk_reads_only_the_range_of_the_lease() -> None:
    tokens = _state_of(to_sdk(Position(HALF, '"42"'), RID))._continuation._continuation

    assert [(token.feed_range.min, token.feed_range.max) for token in tokens] == [(HALF.min, HALF.max)]


def test_our_continuation_is_the_one_that_the_sdk_writes() -> None:
    """The same state, written by the SDK, is byte for byte the same JSON document."""
    ours = to_sdk(Position(HALF, '"42"'), RID)

    assert json.loads(base64.b64decode(ours)) == _state_of(ours).to_dict()


def test_a_continuation_of_the_sdk_gives_its_position() -> None:
    assert from_sdk(to_sdk(Position(HALF, '"42"'), RID)) == [Position(HALF, '"42"')]


def test_a_continuation_after_a_split_has_a_position_for_each_child() -> None:
    state = json.loads(base64.b64decode(to_sdk(Position(EpkRange("", "FF"), '"42"'), RID)))
    state["continuation"]["continuation"] = [
        {"token": '"43"', "range": {"min": "", "max": "7F", "isMinInclusive": True, "isMaxInclusive": False}},
        {
            "token": '"42"',
            "range": {"min": "7F", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False},
        },
    ]

    positions = from_sdk(base64.b64encode(json.dumps(state).encode()).decode())

    assert positions == [Position(EpkRange("", "7F"), '"43"'), Position(EpkRange("7F", "FF"), '"42"')]


def test_a_feed_range_is_spelt_as_the_sdk_spells_it() -> None:
    spelt = {"Range": {"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}}

    assert sdk_feed_range(EpkRange("", "FF")) == spelt
    assert parse_sdk_feed_range(spelt) == EpkRange("", "FF")


@pytest.mark.parametrize("lsn", ["42", "", '""', '"4x"', "eyJ2IjoidjIifQ=="])
def test_a_lease_with_another_kind_of_continuation_is_refused(lsn: str) -> None:
    with pytest.raises(LeasesUnusable, match="no quoted LSN"):
        to_sdk(Position(HALF, lsn), RID)

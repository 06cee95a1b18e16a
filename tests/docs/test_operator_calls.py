"""docs/use/api.md lists every call for operators, and shows the events of an aggregate with the fields that it has."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox.cosmos.maintenance.event_list import EventPage, EventState, ListedEvent
from cosmos_outbox.cosmos.relay.forwarding import RelayFailure
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus
from cosmos_outbox.outbox.errors import FailureReason
from tests.support.functions import functions
from tests.support.paths import ROOT

PAGE = (
    (ROOT / "docs" / "use" / "api.md")
    .read_text()
    .partition("## Calls for operators")[2]
    .partition("## Errors")[0]
)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def admin_calls() -> list[str]:
    """``METHOD /api/route`` of every function that needs the admin key."""
    found = []
    for function in functions().values():
        trigger = function.get_trigger()
        declared = trigger.get_dict_repr() if trigger else {}
        if "admin" in str(declared.get("authLevel", "")).lower():
            found += [
                f"{method.value} /api/{declared['route']}"
                for method in declared["methods"]
                if method.value != "HEAD"
            ]  # which every call with GET takes
    return found


@pytest.mark.parametrize("call", admin_calls())
def test_a_call_for_operators_is_in_the_table(call: str) -> None:
    assert re.search(rf"`{re.escape(call)}[?`]", PAGE), f"add {call} to docs/use/api.md#calls-for-operators"


def listed() -> Mapping[str, Any]:
    """The events of an aggregate."""
    event = ListedEvent("e", 7, "Changed", "2026-03-01T12:00:00Z", "c", EventState.SENT)
    return EventPage(AggregateKey("contact", "c"), [event], None).view()


def shape(value: Any) -> Any:
    """The names in a document, without its values."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


def names_in(value: Any) -> set[str]:
    """The names in a document, at every depth."""
    if isinstance(value, dict):
        return {*value} | {name for each in value.values() for name in names_in(each)}
    return {name for each in value for name in names_in(each)} if isinstance(value, list) else set()


def test_the_answer_about_the_relay_is_explained_field_by_field() -> None:
    section = (ROOT / "docs" / "operate" / "README.md").read_text().partition("## How is the relay?")[2]
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n### ")[0], re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    failure = RelayFailure(FailureReason.BROKER_AWAY, NOW, "Service Bus ...")
    lease = LeaseStatus("0", "owner", 3, 2, 0.0, position=4711, newest=4714)
    status = RelayStatus([lease], [], Counter(), failures=[failure])
    assert explained == names_in(status.view()), "docs/operate/README.md, How is the relay?"


def test_the_list_of_events_is_shown_with_the_fields_that_it_has() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert shape(json.loads(shown)) == shape(listed())

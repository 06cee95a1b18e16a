"""While both versions of a service raise events, each reader reads both; a bug in between is seen."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cosmos_outbox.composition.declarations import ReactionDeclaration, ReadModelDeclaration
from cosmos_outbox.cosmos.aggregates.documents import event_item
from cosmos_outbox.inbox.message import Upcasting
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.service import Service
from outbox_simulation import simulate
from outbox_simulation.derived_invariants.derived import subject
from outbox_simulation.derived_invariants.forms import Form, unread, write
from outbox_simulation.derived_invariants.found import LeftBehind, StoredChange, StoredEvent
from outbox_simulation.derived_invariants.reactions import reaction
from outbox_simulation.derived_invariants.resting_world import RestingWorld
from outbox_simulation.derived_invariants.rules import broken
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import run
from simulated import mixed_fleet
from simulated.mixed_fleet import MeterBefore, MeterState, commands, release, service, uncounted
from tests.support.inbox import NOON
from tests.torture.planted import fits, seen
from tests.torture.planted_bugs import Planted

UPCASTING, DOCUMENTS = "cosmos_outbox/inbox/message.py", "cosmos_outbox/cosmos/aggregates/documents.py"
_HERE = "packages/simulation/tests/test_mixed_fleet.py::test_old_and_new_events_are_read_alike"

PLANTED = [
    Planted(
        "step-changes-the-event-itself",  # an event that is tried again: its entry was changed by another
        UPCASTING,
        "data = deepcopy(dict(event.data))",
        "data = dict(event.data)",
        "",
        ("effect fails", "projection fails", "not settled", "target fails", "reaction left out"),
    ),
    Planted(
        "form-without-its-version",  # what is published says that it is of the version before
        DOCUMENTS,
        "schema_version=event.schema_version, ttl=ttl",
        "schema_version=1, ttl=ttl",
        "",
        ("projection fails", "not settled", "target fails", "effect fails"),
    ),
    Planted(
        "field-of-the-next-version-is-dropped",  # by a change that the version before makes
        "cosmos_outbox/outbox/event.py",
        '        extra="allow",\n',
        '        extra="ignore",\n',
        "",
        ("at rest", "read model", "projection differs", "message differs"),
    ),
]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_old_and_new_events_are_read_alike() -> None:
    simulate(service, commands(), seeds=2, before=release(), at_rest=uncounted)


TOO_NEW = 22
"""In this seed readers of both versions are there for long: in most others none is set aside in so short a time."""


@pytest.mark.long  # test_upcasting of tests/unit has the rule
def test_what_is_too_new_for_the_version_before_waits_for_the_new_one() -> None:
    drawn = SimulationPlan.drawn(TOO_NEW)
    plan = replace(drawn, faults=frozenset({"rollout"}), seconds=6.0, aggregates=2)
    ran = run(plan, subject(service, [commands()], release()), partial(RestingWorld, uncounted))
    assert ran.violations == []
    result = [step.about for step in ran.trace if step.what == "batch" and "set-aside" in step.about]
    assert result, "a reader of the version before has set none aside"


def test_ids_that_the_users_own_code_draws_are_of_the_seed_too() -> None:
    plan = SimulationPlan(1, frozenset(), aggregates=1, seconds=0.5)
    once, again = (
        run(plan, subject(service, [commands()]), partial(RestingWorld, uncounted)).trace for _ in range(2)
    )
    assert any(step.what == "is answered" for step in once)
    assert [*map(str, again)] == [*map(str, once)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "bug", [pytest.param(each, marks=pytest.mark.long) for each in PLANTED], ids=lambda bug: bug.name
)
def test_a_bug_between_two_versions_is_seen(bug: Planted, tmp_path: Path) -> None:
    seen(bug, tmp_path, _HERE, 60)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_between_two_versions(bug: Planted) -> None:
    assert fits(bug), f"{bug.file} has changed: plant {bug.name} anew"


def test_an_event_that_no_step_can_read_has_no_target_and_is_reported() -> None:
    [declared] = [each for each in service.subscribers if isinstance(each, ReactionDeclaration)]
    data = {"createdAt": NOON.isoformat(), "reading": {"wh": 4}}
    event = StoredEvent("e-1", AggregateKey("meter", "m-1"), 1, "MeterRead", "request-1", data, 1)
    found = LeftBehind(changes=[StoredChange(None, [event])])
    found.reactions.append(reaction(declared, "/meters", found, []))
    [result] = [each for each in broken(found) if each.rule == "target fails"]
    assert "the step from version 1 of MeterRead failed" in result.about


def _forms(folder: Path) -> Path:
    """An event of the version before, beside a meter."""
    meter = MeterBefore.load(MeterState(id="m-1", created_at=NOON, last_sequence=1))
    meter.read(4, NOON)
    changes = meter.changes()
    assert changes is not None
    [event] = [event_item(meter, each, Origin("request-1"), ttl=60) for each in changes.events]
    assert (event["data"]["reading"], event["schemaVersion"]) == ({"kwh": 4}, 1)
    state = {"id": "m-1", "partitionKey": "m-1", "type": "meter", "_etag": '"1"'}
    stored = {**state, "data": json.loads(changes.state.model_dump_json(by_alias=True))}
    write(folder, [Form("COSMOS_CONTAINER", stored), Form("COSMOS_CONTAINER", event)])
    return folder


def test_a_stored_form_of_the_version_before_is_read_by_its_step(tmp_path: Path) -> None:
    assert unread(_forms(tmp_path), service) == []


def test_without_the_step_the_stored_form_cannot_be_read(tmp_path: Path) -> None:
    [declared] = [each for each in service.subscribers if isinstance(each, ReadModelDeclaration)]
    stepless = Service("meters", service.aggregates, service.names)
    stepless.read_model(
        "usage", of="meter", form=declared.form, state_of=declared.state_of, project=mixed_fleet.project
    )
    [result] = unread(_forms(tmp_path), stepless)
    assert "it cannot be read: KeyError('wh')" in result.about
    assert Upcasting(mixed_fleet.UPCAST).steps, "the service itself has it"

"""Seeds of the contact service: one story whatever the process, and none of it real."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from outbox_simulation.engine.plan import KINDS, STORE, SimulationPlan, drawn_transport
from outbox_simulation.engine.store import StoreFaults
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS
from tests.support.paths import ROOT

SERVICE = "simulated.contacts:CONTACTS"
SEED = 20
"""With crashes, outages of both servers, lost answers and leases, and still quick."""

OTHER_PYTHON = os.environ.get("OTHER_PYTHON", sys.executable)
"""The second process of a comparison; CI gives one of another version, with the same packages."""

CALM = SimulationPlan(seed=1, faults=frozenset(), aggregates=2, seconds=8.0)


@cache
def _calm() -> SimulatedRun:
    return run(CALM, CONTACTS)


def _simulate(
    *arguments: str, hash_seed: str = "0", python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    where = str(ROOT)
    paths = os.pathsep.join([where, os.path.join(where, "packages", "devstack", "src")])  # noqa: PTH118 - a text
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    command = [python, "-W", "error", "-m", "outbox_simulation", SERVICE, *arguments]
    return subprocess.run(
        command, cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=100
    )


DEPLOYED = ("--faults", "rollout,sessions,triggers,lists,then.away,crash", "--seconds", "15")


@pytest.mark.long  # test_amqp compares two processes
@pytest.mark.parametrize(
    "given", [("--quick",), ("--quick", *DEPLOYED), ("--over", "storagequeue"), ("--over", "webhook")]
)
def test_a_seed_is_one_story_in_every_process(given: tuple[str, ...]) -> None:
    told = ("--seed", str(SEED), *given, "--trace", "-")
    one = _simulate(*told, hash_seed="11")
    other = _simulate(*told, hash_seed="22", python=OTHER_PYTHON)
    assert one.returncode == 0, one.stdout[-2000:] + one.stderr
    assert one.stdout == other.stdout
    assert len(one.stdout.splitlines()) > 400


@pytest.mark.long  # test_amqp compares two processes over the same SDK and broker
def test_a_seed_of_the_full_form_is_one_story_in_every_process() -> None:
    told = [_simulate("--seed", str(SEED), "--full", "--trace", "-", hash_seed=each) for each in ("11", "22")]
    assert told[0].returncode == 0, told[0].stdout[-2000:] + told[0].stderr
    assert told[0].stderr == ""
    assert told[0].stdout == told[1].stdout
    assert "full form" in told[0].stdout
    assert len(told[0].stdout.splitlines()) > 1000


def test_a_seed_is_the_same_story_whatever_ran_before_it() -> None:
    first = _calm()
    run(replace(CALM, seed=2), CONTACTS)
    again = run(CALM, CONTACTS)
    assert [str(each) for each in first.trace] == [str(each) for each in again.trace]
    assert first.violations == []
    assert len(first.history.stored) > 10
    assert first.history.stored.keys() == first.history.deliveries.keys()


def test_first_in_first_out_is_another_story_and_a_good_one() -> None:
    told = run(replace(CALM, shuffled=False), CONTACTS)
    assert told.violations == []
    assert told.trace.digest() != _calm().trace.digest()


def test_each_seed_draws_its_own_mix() -> None:
    plans = [SimulationPlan.drawn(seed) for seed in range(200)]
    assert SimulationPlan.drawn(7) == plans[7]
    assert set().union(*(plan.faults for plan in plans)) == KINDS
    assert len({plan.faults for plan in plans}) > 150
    assert {plan.partitions for plan in plans} == {1, 2, 3}
    assert set(StoreFaults.__dataclass_fields__) == {*STORE, "longest_seconds", "lag_seconds", "near"}


def test_most_seeds_stay_with_the_first_transport_and_each_other_has_some() -> None:
    drawn = Counter(drawn_transport(seed, CONTACTS.over) for seed in range(300))
    assert drawn["servicebus"] > 150
    assert min(drawn["storagequeue"], drawn["webhook"]) > 20
    assert {drawn_transport(seed, ["servicebus"]) for seed in range(50)} == {"servicebus"}


def test_a_plan_with_fewer_kinds_is_the_same_in_all_else() -> None:
    whole = SimulationPlan(seed=3, faults=KINDS)
    less = replace(whole, faults=KINDS - {"store.throttled", "crash"})
    assert replace(whole.store, throttled=0.0) == less.store
    assert (whole.bus, whole.settings, whole.partitions) == (less.bus, less.settings, less.partitions)

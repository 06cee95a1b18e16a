"""Seeds of the contact service: one story whatever the process, and none of it real."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from outbox_simulation.engine.plan import KINDS, SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS
from tests.support.paths import ROOT, python_path

SERVICE = "simulated.contacts:CONTACTS"
SEED = 20
"""With crashes, outages of both servers, lost answers and leases, and still quick."""

CALM = SimulationPlan(seed=1, faults=frozenset(), aggregates=2, seconds=4.0)


@cache
def _calm() -> SimulatedRun:
    return run(CALM, CONTACTS)


def _simulate(*arguments: str, hash_seed: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": python_path()}
    command = [sys.executable, "-W", "error", "-m", "outbox_simulation", SERVICE, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=100
    )


DEPLOYED = ("--faults", "rollout,sessions,triggers,lists,then.away,crash", "--seconds", "15")


@pytest.mark.long  # two processes each
@pytest.mark.parametrize(
    "given",
    [
        ("--over", "servicebus"),
        ("--over", "servicebus", *DEPLOYED),
        ("--over", "storagequeue"),
        ("--over", "webhook"),
    ],
)
def test_a_seed_is_one_story_in_every_process(given: tuple[str, ...]) -> None:
    result = ("--seed", str(SEED), *given, "--trace", "-")
    one = _simulate(*result, hash_seed="11")
    other = _simulate(*result, hash_seed="22")
    assert one.returncode == 0, one.stdout[-2000:] + one.stderr
    assert one.stdout == other.stdout
    assert len(one.stdout.splitlines()) > 400


@pytest.mark.long  # test_store has the same for the store
def test_a_seed_is_the_same_story_whatever_ran_before_it() -> None:
    first = _calm()
    run(replace(CALM, seed=2, seconds=2.0), CONTACTS)
    again = run(CALM, CONTACTS)
    assert [str(each) for each in first.trace] == [str(each) for each in again.trace]
    assert first.violations == []
    assert len(first.history.stored) > 10
    assert first.history.stored.keys() == first.history.deliveries.keys()


@pytest.mark.long
def test_first_in_first_out_is_another_story_and_a_good_one() -> None:
    result = run(replace(CALM, shuffled=False), CONTACTS)
    assert result.violations == []
    assert result.trace.digest() != _calm().trace.digest()


def test_a_plan_with_fewer_kinds_is_the_same_in_all_else() -> None:
    whole = SimulationPlan(seed=3, faults=KINDS)
    less = replace(whole, faults=KINDS - {"store.throttled", "crash"})
    assert replace(whole.store, throttled=0.0) == less.store
    assert (whole.bus, whole.settings, whole.partitions) == (less.bus, less.settings, less.partitions)

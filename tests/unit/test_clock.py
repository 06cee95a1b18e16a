"""Time, ids and luck: each context has its own, tasks inherit them, and no product module gets them elsewhere."""

import ast
import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import RFC_4122, UUID

import pytest

from cosmos_outbox.kernel.clock import (
    SYSTEM,
    Sources,
    machine,
    new_id,
    randomness,
    sources,
    using,
    utc_now,
)
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.telemetry import correlation
from cosmos_outbox.telemetry.tracing import of_no_request
from cosmos_outbox.testing.clock import Clock
from tests.support.paths import ROOT

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(moment: datetime) -> Sources:
    return replace(SYSTEM, now=lambda: moment)


async def now_after_a_pause() -> datetime:
    await asyncio.sleep(0)
    return utc_now()


async def test_two_instances_in_one_loop_have_two_clocks() -> None:
    async def instance(moment: datetime) -> list[datetime]:
        with using(at(moment)):
            return [await now_after_a_pause() for _ in range(3)]

    later = NOON + timedelta(hours=1)
    assert [*await asyncio.gather(instance(NOON), instance(later))] == [[NOON] * 3, [later] * 3]


async def test_a_task_and_a_thread_keep_the_sources_of_their_block() -> None:
    with using(at(NOON)):
        task = asyncio.create_task(now_after_a_pause())
        assert await asyncio.to_thread(utc_now) == NOON
    assert utc_now() != NOON
    assert await task == NOON


def test_the_end_of_a_block_restores_what_was_before_an_error_too() -> None:
    assert sources() is SYSTEM
    with using(at(NOON)):
        with pytest.raises(KeyError), using(at(NOON + timedelta(days=1))):
            raise KeyError
        assert utc_now() == NOON
    assert sources() is SYSTEM


def test_the_context_of_no_request_keeps_sources_and_leaves_the_request() -> None:
    with using(at(NOON)), correlation.correlated("request-7"):
        context = of_no_request()
        assert correlation.current() == "request-7", "only the new context has left it"
    assert context.run(utc_now) == NOON
    assert context.run(correlation.current) is None


def drawn(seed: int) -> tuple[list[UUID], list[float], UUID, str]:
    with using(Clock(NOON).seeded(seed)):
        ids = [new_id() for _ in range(100)]
        return ids, [randomness().random() for _ in range(10)], new_id(), machine()


def test_a_seed_gives_the_same_luck_and_the_same_version_4_ids() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7)[0] != drawn(8)[0]
    ids = drawn(random.randrange(2**64))[0]
    assert len(set(ids)) == 100
    assert {(each.version, each.variant) for each in ids} == {(4, RFC_4122)}


def test_what_was_made_before_the_block_asks_the_clock_of_the_block() -> None:
    """Its functions look the sources up at each call: nothing was bound when it was made."""
    once, clock = LogThrottle(), Clock(NOON)
    with using(clock.seeded(1)):
        assert [once.due(), once.due()] == [True, False]
        clock.pass_by(seconds=60)
        assert once.due()


PRODUCT = ("cosmos_outbox", "cosmos_changefeed", "domain", "application", "infra", "function_app.py")
ELSEWHERE = ("cosmos_outbox/testing", "cosmos_outbox/cli/templates")
"""What waits for real processes, and what becomes a user's own."""
THE_PLACES = ("cosmos_outbox/kernel/clock.py", "cosmos_changefeed/clock.py")

MODULES = {"time", "random", "secrets"}
"""Nothing of these is for product code."""
NAMES = {
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "uuid": {"uuid1", "uuid4", "uuid6", "uuid7", "uuid8"},
    "os": {"urandom", "getrandom"},
    "socket": {"gethostname", "getfqdn"},
    "platform": {"node"},
    "timeit": {"default_timer"},
    "AESGCM": {"generate_key"},
    "loop": {"time", "call_at"},
    "asyncio.get_running_loop()": {"time", "call_at"},
    "asyncio": {"timeout_at"},
}
"""Owner and attribute, or module and name: what reads the time, makes an id or draws a lot."""
ATTRIBUTES = {each for names in NAMES.values() for each in names}

EXCEPTIONS = {
    (
        "domain/contact.py",
        "uuid.uuid4",
    ): "tests and tools make contacts without an id; the service brings each id",
}


def uses(module: ast.Module) -> Iterator[str]:
    """What of that a module imports or names. A reference is enough: bound as a default it would outlive a block."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            for each in node.names:
                if home in MODULES or each.name in NAMES.get(home, ()):
                    yield f"{home}.{each.name}"
        elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            owner = ast.unparse(node.value)
            for known in (owner, owner.rpartition(".")[2]):
                if node.attr in NAMES.get(known, ()):
                    yield f"{known}.{node.attr}"
                    break


@cache
def found() -> set[tuple[str, str]]:
    paths = [
        path
        for place in PRODUCT
        for path in ([ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*.py")))
    ]
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {
        (name, use)
        for name, path in names.items()
        if not name.startswith(ELSEWHERE) and name not in THE_PLACES
        for use in uses(ast.parse(path.read_text()))
    }


def test_no_product_module_gets_time_ids_or_luck_elsewhere() -> None:
    assert sorted(found() - EXCEPTIONS.keys()) == [], (
        "take it from cosmos_outbox.kernel.clock, or from the Clock that cosmos_changefeed is given"
    )


def test_no_exception_is_left_over() -> None:
    assert sorted(EXCEPTIONS.keys() - found()) == []


@pytest.mark.parametrize(
    ("code", "use"),
    [
        ("import time\ndef wait(clock=time.monotonic): ...", "time"),
        ("from time import perf_counter", "time.perf_counter"),
        ("import random", "random"),
        ("from secrets import token_hex", "secrets.token_hex"),
        ("from uuid import UUID, uuid4", "uuid.uuid4"),
        ("import uuid\nfield(default_factory=uuid.uuid1)", "uuid.uuid1"),
        ("import datetime\ndatetime.datetime.now(datetime.UTC)", "datetime.now"),
        ("datetime.utcnow()", "datetime.utcnow"),
        ("import os\nos.urandom(3)", "os.urandom"),
        ("socket.gethostname()", "socket.gethostname"),
        ("asyncio.get_running_loop().time()", "asyncio.get_running_loop().time"),
        ("asyncio.timeout_at(3)", "asyncio.timeout_at"),
    ],
)
def test_it_is_seen_where_a_module_does(code: str, use: str) -> None:
    assert use in [*uses(ast.parse(code))]

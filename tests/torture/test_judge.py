"""A verdict lists no event that the service had no time to deliver."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cosmos_outbox.testing.judging.records import Noted
from cosmos_outbox.testing.judging.violation import Violation
from tests.torture.journal import Journal
from tests.torture.judge import BAD, BROKEN_OFF, GOOD, Judge, Verdict, before_its_time
from tests.torture.operator import Operator
from tests.torture.story import CONTACT, Story, details

LATE = Violation("lost event", "it may still come", may_pass=True)
FOR_GOOD = Violation("order", "2, 1")


def judge(folder: Path, url: str, told: Story) -> Judge:
    """With journals that say what the story tells, the events as the subscriber's."""
    clients, subscriber = folder / "clients", folder / "subscriber"
    write(clients, (record for record in told.records if record.type in ("attempted", "answered")))
    write(subscriber, (record for record in told.records if record.type in ("delivered", "completed")))
    return Judge(Operator(url, Journal(clients)), clients, subscriber)


def write(path: Path, records: Iterable[Noted]) -> None:
    journal = Journal(path)
    for record in records:
        journal.write(record)
    journal.close()


@asynccontextmanager
async def api(*contacts: dict[str, Any]) -> AsyncIterator[str]:
    """An API that lists these contacts, a directory of them, and nothing parked or set aside."""
    lists = {"/contacts": contacts, "/directory": tuple(map(entry, contacts))}

    async def listed(request: web.Request) -> web.Response:
        items = lists.get(request.path, ())
        return web.Response(text=json.dumps({"items": items, "continuationToken": None}))

    application = web.Application()
    application.router.add_get("/{list}", listed)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def contact() -> dict[str, Any]:
    return {"id": CONTACT, **details("a"), "sequence": 1}


def entry(contact: dict[str, Any]) -> dict[str, Any]:
    company = contact["company"] or {}
    shown = {
        "company": company.get("companyName"),
        "city": company.get("city"),
        "country": company.get("country"),
    }
    return {
        "id": contact["id"],
        **contact["name"],
        "email": contact["email"],
        **shown,
        "sequence": contact["sequence"],
    }


async def test_a_directory_that_does_not_follow_is_found(tmp_path: Path) -> None:
    told = Story().created("a").delivered("a", "Created", 1)
    shown = contact()
    async with api(shown) as url:
        shown["sequence"] = 2
        verdict = await judge(tmp_path, url, told).wait(0.0)
    assert [violation.rule for violation in verdict.violations] == [
        "state differs from the events",
        "read model",
    ]


def test_an_event_that_only_had_no_time_is_counted_and_not_listed() -> None:
    verdict = before_its_time([LATE, FOR_GOOD, LATE])
    assert (verdict.violations, verdict.open, verdict.exit_code) == ([FOR_GOOD], 2, BAD)


def test_a_run_that_was_broken_off_is_neither_good_nor_bad_unless_something_is_wrong_for_good() -> None:
    assert Verdict().exit_code == GOOD
    assert before_its_time([LATE], "stopped").exit_code == BROKEN_OFF
    assert before_its_time([LATE, FOR_GOOD], "stopped").exit_code == BAD


def test_a_run_that_was_stopped_is_judged_by_its_journals(tmp_path: Path) -> None:
    told = Story().created("a").patched("b", "name").delivered("a", "Created", 1)
    verdict = judge(tmp_path, "http://127.0.0.1:1", told).broken_off("stopped")
    assert (verdict.violations, verdict.broken_off) == ([], "stopped")
    assert verdict.open == 2  # the event of the change, and the contact in a list that nobody could ask for

    told.delivered("b", "NameUpdated", 7)
    verdict = judge(tmp_path / "again", "http://127.0.0.1:1", told).broken_off("stopped")
    assert [violation.rule for violation in verdict.violations] == ["order"]


async def test_lists_that_cannot_be_had_in_time_break_a_run_off(tmp_path: Path) -> None:
    told = Story().created("a").delivered("a", "Created", 1)
    verdict = await judge(tmp_path, "http://127.0.0.1:1", told).wait(0.0)
    assert (verdict.violations, verdict.exit_code) == ([], BROKEN_OFF)
    assert verdict.broken_off == "the API did not give its lists within 0 s"


async def test_events_that_still_arrive_at_the_end_break_a_run_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.torture.judge.QUIET_SECONDS", float("inf"))
    told = Story().created("a").patched("b", "name").delivered("a", "Created", 1)
    async with api(contact()) as url:
        verdict = await judge(tmp_path, url, told).wait(0.0)
    assert (verdict.violations, verdict.open, verdict.exit_code) == ([], 1, BROKEN_OFF)
    assert verdict.broken_off == "events still arrived after 0 s"


async def test_an_event_that_did_not_come_in_time_is_lost(tmp_path: Path) -> None:
    told = Story().created("a").patched("b", "name").delivered("a", "Created", 1)
    async with api(contact()) as url:
        verdict = await judge(tmp_path, url, told).wait(0.0)
    assert [violation.rule for violation in verdict.violations] == ["lost event"]
    assert (verdict.open, verdict.exit_code) == (0, BAD)


async def test_all_is_well_when_all_has_come_and_it_is_quiet(tmp_path: Path) -> None:
    async with api(contact()) as url:
        verdict = await judge(tmp_path, url, Story().created("a").delivered("a", "Created", 1)).wait(60.0)
    assert verdict == Verdict([])


async def test_a_run_in_which_nothing_happened_is_not_good(tmp_path: Path) -> None:
    async with api() as url:
        verdict = await judge(tmp_path, url, Story()).wait(60.0)
    assert [violation.rule for violation in verdict.violations] == ["nothing happened"]


async def test_what_is_wrong_for_good_is_seen_while_faults_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.torture.judge.LOOK_EARLY_SECONDS", 0.01)
    told = Story().created("a").patched("b", "name").delivered("b", "NameUpdated", 2)
    async with asyncio.timeout(30):
        await judge(tmp_path, "http://127.0.0.1:1", told).until_broken_for_good()


async def test_one_look_at_what_may_not_be_noted_yet_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([[FOR_GOOD], [LATE], [FOR_GOOD], [FOR_GOOD], [LATE]])
    monkeypatch.setattr("tests.torture.judge.LOOK_EARLY_SECONDS", 0.0)
    monkeypatch.setattr("tests.torture.judge.check", lambda *_: next(looks))
    await judge(tmp_path, "http://127.0.0.1:1", Story()).until_broken_for_good()
    assert [*looks] == [[LATE]]

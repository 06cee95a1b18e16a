"""The judge of the checkout story sees each broken promise, and nothing in a run that keeps them; a run keeps them."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from cosmos_outbox import Origin
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.testing import InMemory, Message, in_memory
from cosmos_outbox.testing.messages import message_of
from examples.checkout.article import Article, NewArticle
from examples.checkout.order import NewOrder, Order
from examples.checkout.payment import Payment, payment_of
from examples.checkout.tests.at_rest import SUPPLY
from tests.support.paths import ROOT, python_path
from tests.torture.checkout.judged import judge, left_behind
from tests.torture.checkout.service import service
from tests.torture.checkout.story import TRANSPORTS
from tests.torture.planted import copy_tracked, fits, plant
from tests.torture.planted_bugs import Planted

ORIGIN = Origin("test")


@pytest.fixture
async def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InMemory]:
    monkeypatch.setenv("LETTERS", str(tmp_path / "letters"))
    async with in_memory(service) as made:
        yield made


class Past:
    """What a run with one order that is paid, and one that is not, left behind."""

    def __init__(self, memory: InMemory, letters: Path) -> None:
        self.documents: list[dict[str, Any]] = [dict(each) for each in memory.documents]
        self.messages: list[Message] = [message_of(each, "/checkout") for each in memory.events]
        self.letters = letters.read_text().split()
        self.now = memory.clock() + timedelta(hours=1)

    def wrong(self) -> set[str]:
        found = left_behind(service, self.documents, self.messages, self.letters)
        return {each.rule for each in judge(found, service, self.now)}

    @property
    def unpaid(self) -> dict[str, Any]:
        """The state of the order that was cancelled."""
        states: list[dict[str, Any]] = [each["data"] for each in self.documents if each["type"] == "order"]
        return next(each for each in states if each["status"] == "cancelled")

    def event(self, action: str) -> dict[str, Any]:
        return next(each for each in self.documents if each["data"].get("action") == action)


@pytest.fixture
async def past(memory: InMemory, tmp_path: Path) -> Past:
    article = Article.add(NewArticle(available=SUPPLY), id=uuid4(), at=utc_now())
    await service().aggregates.create(article, ORIGIN)
    orders = []
    for _ in range(2):
        wanted = NewOrder(article_id=article.state.id, quantity=2, amount=9)
        orders.append(Order.place(wanted, id=uuid4(), at=utc_now()))
        await service().aggregates.create(orders[-1], ORIGIN)
    await _come(memory)
    paid = str(payment_of(UUID(orders[0].aggregate_id)))
    await service().aggregates.change(Payment, paid, lambda each: each.settle(at=utc_now()), ORIGIN)
    await _come(memory)
    memory.clock.pass_by(minutes=31)
    await memory.upkeep()
    await _come(memory)
    return Past(memory, tmp_path / "letters")


async def _come(memory: InMemory) -> None:
    """Every message, and those that follow from it; some have come before."""
    known = 0
    while new := memory.events[known:]:
        known += len(new)
        assert await memory.deliver(*(message_of(each, "/checkout") for each in new)) == []


def _twice(past: Past) -> None:
    """The pieces are held once more, by the same message."""
    held = past.event("ArticleHeld")
    more = {**held["data"], "id": str(uuid4()), "sequence": 6}
    past.documents.append({**held, "id": more["id"], "data": more})


def _early(past: Past) -> None:
    past.unpaid["payBy"] = "2999-01-01T00:00:00Z"


def _never_met(past: Past) -> None:
    past.unpaid["status"] = "reserved"


def _no_record(past: Past) -> None:
    past.documents.remove(next(each for each in past.documents if each["type"] == "reactionRecord"))


def _by_nobody(past: Past) -> None:
    past.letters.append(str(uuid4()))


BROKEN: list[tuple[Callable[[Past], Any], str]] = [
    (_twice, "reaction twice"),
    (_no_record, "reaction left out"),
    (lambda past: past.letters.pop(), "effect not asked for"),
    (_by_nobody, "effect of no event"),
    (_early, "deadline early"),
    (_never_met, "still due"),
    (lambda past: past.messages.pop(), "lost event"),
    (lambda past: past.event("OrderPaid")["data"].update(sequence=9), "gap"),
]


@pytest.mark.long
async def test_the_judge_sees_what_is_broken(past: Past) -> None:
    assert past.wrong() == set()
    for breaks, rule in BROKEN:
        own = deepcopy(past)
        breaks(own)
        assert rule in own.wrong(), rule


def tortured(root: Path, transport: str, seed: int, seconds: int = 25) -> subprocess.CompletedProcess[str]:
    """One run of what is in this folder."""
    arguments = ("--seconds", str(seconds), "--seed", str(seed), "--transport", transport)
    return subprocess.run(
        [sys.executable, "-m", "tests.torture.checkout", *arguments],
        cwd=root, env=os.environ | {"PYTHONPATH": python_path(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.deep
@pytest.mark.timeout(1200)  # what a killed host holds comes again after ten minutes
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_reactions_happen_once_and_no_letter_or_deadline_is_lost(transport: str) -> None:
    done = tortured(ROOT, transport, seed=13)
    assert done.returncode == 0, done.stdout + done.stderr


PLANTED = (
    Planted(
        "a-message-is-done-though-the-store-did-not-answer",
        "cosmos_outbox/inbox/receiver.py",
        "            except StoreUnavailable:\n                raise\n            except (EffectRefused",
        "            except StoreUnavailable:\n                return None\n            except (EffectRefused",
        "storagequeue",
        ("reaction left out", "effect not asked for"),
    ),
    Planted(
        "a-receiver-answers-and-forgets",
        "examples/receiver/inbox.py",
        "        return sqlite3.connect(self._file, timeout=5, isolation_level=None)\n",
        "        from os import getpid\n\n"
        '        return sqlite3.connect(f"{self._file}-{getpid()}", timeout=5, isolation_level=None)\n',
        "servicebus",
        ("receiver",),
    ),
)
"""``profile`` is the transport."""


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    assert fits(bug), f"{bug.file} has changed: plant {bug.name} anew"


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("bug", "seeds"), [(PLANTED[0], (13, 14, 15)), (PLANTED[1], (5, 13, 3))])
def test_a_planted_bug_is_found(bug: Planted, seeds: tuple[int, ...], tmp_path: Path) -> None:
    """A seed repeats a plan, and not what is under way when it strikes."""
    copy_tracked(tmp_path)
    plant(bug, tmp_path)
    told = ""
    for seed in seeds:
        done = tortured(tmp_path, bug.profile, seed)
        told += done.stdout + done.stderr
        if done.returncode:
            break
    assert any(f"{rule}: " in told for rule in bug.rules), told

"""The nemesis breaks what the plan says, when the plan says it, and restarts every process."""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp

from outbox_simulation.invariants.records import Struck
from tests.support.azure import CONTACTS, DIRECTORY
from tests.torture.clients import Client
from tests.torture.lost_leases import delete_leases
from tests.torture.operator import Operator
from tests.torture.other_version import change_as_another_version, store_without_sequence
from tests.torture.poison import poison
from tests.torture.stack import APP_SUBSCRIPTION, DATABASE, PARTITIONS, TOPIC, Stack
from tests.torture.strike import Kind, Strike
from tests.torture.thief import Thief

_CHANGES_OF_A_POISONED_CONTACT = 2
_NO_FEED_SECONDS = 5.0
_NO_FEED: Mapping[str, Any] = {
    "kind": "throttle",
    "operation": "feed",
    "container": CONTACTS,
    "count": 100_000,
    "forSeconds": _NO_FEED_SECONDS,
    "retryAfterMs": 700,
}
"""The SDK waits for so long by itself: no relay makes longer pauses because of it."""
_FULL: Mapping[str, Any] = {"kind": "full", "count": None, "share": 0.5, "forSeconds": 6.0}
"""The SDK does not repeat a send that a full topic refuses: one batch of a flood is given up, the next would pass."""
_SOME_PAGES_SECONDS = 1.5
_SLOW: Mapping[str, Any] = {
    "kind": "slow",
    "count": None,
    "forSeconds": 2 * _SOME_PAGES_SECONDS,
    "seconds": 0.3,
}
_ALL_REFUSED: Mapping[str, Any] = {"kind": "full", "count": None, "forSeconds": 2 * _SOME_PAGES_SECONDS}
_ATTEMPTS_TO_FIND_A_VICTIM = 10
_PAUSE_SECONDS = 0.5
_SPLITS_IN_A_ROW = 2
_DELETED_AFTER_A_THEFT = 0.7
"""How many contacts of which a message became a dead letter are deleted: the message comes after their end."""


@dataclass
class Nemesis:
    """Strikes may overlap, but no process is touched by two at the same time."""

    stack: Stack
    operator: Operator
    victim: Client
    """Makes the contacts that are poisoned."""
    chance: random.Random
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _changes: Iterator[int] = field(default_factory=count)
    _ranges: list[str] = field(default_factory=lambda: [str(number) for number in range(PARTITIONS)])

    async def run(self, strikes: Sequence[Strike]) -> None:
        """Everything of the plan; returns when the last strike is over, all processes running."""
        started = time.monotonic()
        async with asyncio.TaskGroup() as striking:
            for strike in strikes:
                await asyncio.sleep(max(0.0, started + strike.at - time.monotonic()))
                striking.create_task(self._strike(strike))

    async def heal(self) -> None:
        """No fault is left that is still to happen. A service that is busy is asked again."""
        for service in (self.stack.cosmos, self.stack.servicebus):
            while not await _arrange(service.faults.clear()):  # noqa: ASYNC110 - nothing announces that it is there again
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _strike(self, strike: Strike) -> None:
        if strike.target in ("worker", "leases") and "worker" not in self.stack.processes:
            return  # where there is no worker, nothing makes leases again before the next timer
        began = time.monotonic()
        done = await self._do(strike)
        seconds = time.monotonic() - began
        self.operator.journal.write(
            Struck(fault=strike.name, target=strike.target, seconds=seconds, done=done, at=began)
        )

    async def _do(self, strike: Strike) -> bool:
        stack = self.stack
        deeds: dict[Kind, Callable[[], Awaitable[bool]]] = {
            "kill": lambda: self._kill(strike.target, strike.seconds),
            "pause": lambda: self._pause(strike.target, strike.seconds),
            "split": self._split,
            "split unattended": lambda: self._split_unattended(strike.seconds),
            "delete leases": lambda: delete_leases(stack, self.chance, strike.fault["kind"]),
            "cosmos": lambda: _arrange(stack.cosmos.faults.add(**strike.fault)),
            "lag": lambda: _arrange(stack.cosmos.faults.add(**strike.fault)),
            "servicebus": lambda: _arrange(stack.servicebus.faults.add(**strike.fault)),
            "poison": self._poison,
            "poison contact": lambda: self._poison_a_contact(strike.seconds),
            "other version": self._other_version,
            "flood": self._flood,
            "death between pages": self._death_between_pages,
            "operator": self.operator.settle,
            "thief": lambda: self._steal(strike.seconds),
            "refuse entry": lambda: self._refuse_an_entry(strike.fault),
            "operator of the subscriber": self.operator.apply_what_was_set_aside,
        }
        return await deeds[strike.kind]()

    async def _kill(self, target: str, seconds: float) -> bool:
        process = self.stack.processes[target]
        async with self._lock(target):
            await asyncio.to_thread(process.kill)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(process.start)
        return True

    async def _pause(self, target: str, seconds: float) -> bool:
        process = self.stack.processes[target]
        async with self._lock(target):
            process.pause()
            try:
                await asyncio.sleep(seconds)
            finally:
                process.resume()
        return True

    async def _split(self) -> bool:
        async with self._lock("split"):
            chosen = self.chance.choice(self._ranges)

            async def split() -> None:
                children = await self.stack.cosmos.faults.split(DATABASE, CONTACTS, chosen)
                self._ranges.remove(chosen)
                self._ranges += children

            return await _arrange(split())

    async def _split_unattended(self, seconds: float) -> bool:
        """Events wait since the broker does not answer; all relays die; partitions split; all come back."""
        servicebus = self.stack.servicebus
        relays = [*self.stack.others, *(self.stack.processes.get(name) for name in ("functions", "worker"))]
        async with self._lock("functions"), self._lock("servicebus"), self._lock("worker"):
            servicebus.pause()
            try:
                await asyncio.sleep(seconds)
                await asyncio.gather(*(asyncio.to_thread(each.kill) for each in relays if each))
            finally:
                servicebus.resume()
            done = [await self._split() for _ in range(_SPLITS_IN_A_ROW)]
            await asyncio.gather(*(asyncio.to_thread(each.start) for each in relays if each))
        return any(done)

    async def _poison(self, contact: str | None = None) -> bool:
        poisoned = await poison(self.stack, self.operator.journal, self.chance, contact)
        self.operator.broken.add(poisoned.document)
        return poisoned.stored is True

    async def _poison_a_contact(self, seconds: float) -> bool:
        """Clients get it after so many seconds; soon after that one of them deletes it."""
        contact = await self._new_contact()
        if contact is None:
            return False
        await self.victim.patch(contact)
        done = await self._poison(contact)
        for _ in range(_CHANGES_OF_A_POISONED_CONTACT):
            await self.victim.patch(contact)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(_PAUSE_SECONDS)
            await self.victim.patch(contact)
        self.victim.directory.saw(contact, None)
        return done

    async def _other_version(self) -> bool:
        """A contact is changed by other versions of the service, and goes on as any other."""
        contact = await self._new_contact()
        if contact is None:
            return False
        await self.victim.patch(contact)
        number = next(self._changes)
        changed = await change_as_another_version(
            self.stack, self.operator.journal, contact, f"version-{number}"
        )
        await self.victim.patch(contact)
        event_id = str(uuid.UUID(int=self.chance.getrandbits(128), version=4))
        stored = await store_without_sequence(self.stack, self.operator.journal, contact, event_id)
        await self.victim.patch(contact)
        self.victim.directory.saw(contact, None)
        return changed and stored

    async def _flood(self) -> bool:
        """While no relay reads the feed, a contact gets more events than a batch holds; then the topic refuses some."""
        contact = await self._new_contact()
        if contact is None or not await _arrange(self.stack.cosmos.faults.add(**_NO_FEED)):
            return False
        readable = time.monotonic() + _NO_FEED_SECONDS
        while time.monotonic() < readable - 0.5:
            await self.victim.patch_company(contact)
        self.victim.directory.saw(contact, None)
        await asyncio.sleep(max(0.0, readable - 0.2 - time.monotonic()))
        return await _arrange(self.stack.servicebus.faults.add(**_FULL))

    async def _death_between_pages(self) -> bool:
        """No relay reads the feed for a while; then sends are slow, then refused, and the second relay is killed.

        Of the events that waited, it then has one page with the broker, and the next one read ahead.
        """
        if not await _arrange(self.stack.cosmos.faults.add(**_NO_FEED)):
            return False
        await asyncio.sleep(_NO_FEED_SECONDS)
        done = await _arrange(self.stack.servicebus.faults.add(**_SLOW))
        await asyncio.sleep(_SOME_PAGES_SECONDS)
        done = await _arrange(self.stack.servicebus.faults.add(**_ALL_REFUSED)) and done
        await asyncio.sleep(_SOME_PAGES_SECONDS)
        return await self._kill("worker", 0.2) and done

    async def _steal(self, seconds: float) -> bool:
        connection = self.stack.servicebus.connection_string
        thief = Thief(connection, TOPIC, APP_SUBSCRIPTION, self.operator.journal, self.chance)
        until, done = time.monotonic() + seconds, False
        while time.monotonic() < until:
            stolen = await thief.steal()
            done = done or stolen is not None
            if stolen and not stolen.lost and self.chance.random() < _DELETED_AFTER_A_THEFT:
                await self.victim.delete(stolen.aggregate)
        return done

    async def _refuse_an_entry(self, fault: Mapping[str, Any]) -> bool:
        """The store takes no request for the entry of one contact, of which the app then sets messages aside."""
        contacts = sorted(self.victim.directory.etags)
        if not contacts:
            return False
        path = f"*/colls/{DIRECTORY}/docs/{self.chance.choice(contacts)}"
        return await _arrange(self.stack.cosmos.faults.add(**fault, path=path))

    async def _new_contact(self) -> str | None:
        """A contact that only the victim knows of."""
        for _ in range(_ATTEMPTS_TO_FIND_A_VICTIM):
            if contact := await self.victim.create():
                self.victim.directory.gone(contact)
                return contact
            await asyncio.sleep(_PAUSE_SECONDS)
        return None

    def _lock(self, target: str) -> asyncio.Lock:
        return self._locks.setdefault(target, asyncio.Lock())


async def _arrange(call: Awaitable[None]) -> bool:
    """Whether the service took the call: it may be away. Raises when it does not understand: a mistake of ours."""
    try:
        await call
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
    except ValueError as error:
        if "faults already" not in str(error):
            raise
        return False
    return True

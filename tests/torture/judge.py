"""The verdict on a run lists final violations; an event that only had no time to arrive is counted, never listed.

A run is broken off when somebody stops it, when a process does not come back, or when time runs out while the service
still works. Then the verdict says nothing about events that have not arrived; violations that no waiting could end
stand all the same.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outbox_simulation.invariants.checker import check
from outbox_simulation.invariants.entries import at_rest
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.records import FinallyListed, SeenEntry
from outbox_simulation.invariants.violation import Violation
from tests.torture.contacts import Contacts, sequence_of
from tests.torture.journal import Reader
from tests.torture.listing import whole_list
from tests.torture.operator import Operator

QUIET_SECONDS = 3.0
"""So long nothing may arrive any more before a run counts as over: a late duplicate is one too."""

LOOK_EARLY_SECONDS = 2.0
"""The pause between two looks while faults go on."""

_LOOK_SECONDS = 0.5

GOOD, BAD, BROKEN_OFF = 0, 1, 2
"""Exit codes."""


@dataclass(frozen=True)
class Verdict:
    """What the checker found, as far as it counts."""

    violations: Sequence[Violation] = ()
    open: int = 0
    """How much was missing that might still have come: not counted, since the run ended before its time."""
    broken_off: str = ""
    """Why the run was broken off, when it was."""

    @property
    def exit_code(self) -> int:
        """A broken-off run without a violation is neither good nor bad."""
        if self.violations:
            return BAD
        return BROKEN_OFF if self.broken_off else GOOD


def before_its_time(found: Sequence[Violation], broken_off: str = "") -> Verdict:
    """The verdict when nobody waited for what was late."""
    standing = [violation for violation in found if not violation.may_pass]
    return Verdict(standing, len(found) - len(standing), broken_off)


@dataclass
class Judge:
    """Reads the journals on, asks for the final state, and lets the checker look, again and again."""

    operator: Operator
    clients_log: Path
    subscriber_log: Path
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        # What was delivered is read first: what caused it is then in the other journal.
        self._readers = [Reader(self.subscriber_log), Reader(self.clients_log)]

    async def wait(self, patience: float) -> Verdict:
        """The verdict as soon as all is well and quiet, or something is wrong for good, or patience is used up."""
        deadline = time.monotonic() + patience
        while True:
            found, complete = await self._look()
            if any(not violation.may_pass for violation in found):
                verdict = before_its_time(found)
                break
            if complete and not found and self._is_quiet():
                verdict = self._in_time(found)
                break
            if time.monotonic() > deadline:
                verdict = self._at_the_deadline(found, patience, complete=complete)
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for contact in self.history.found:
            self.operator.journal.write(contact)
        return verdict

    async def until_broken_for_good(self) -> None:
        """Returns when two looks one after the other have found something that no wait can mend.

        One look is not enough: what was written past the service may be seen before its writer has noted it.
        """
        before: set[str] = set()
        while True:
            await asyncio.sleep(LOOK_EARLY_SECONDS)
            self._read_on()
            found = {
                str(violation) for violation in check(self.history, Contacts()) if not violation.may_pass
            }
            if found & before:
                return
            before = found

    def broken_off(self, why: str) -> Verdict:
        """The verdict when there is nobody left to ask: by the journals alone."""
        self._read_on()
        return before_its_time(check(self.history, Contacts()), why)

    def _at_the_deadline(self, found: Sequence[Violation], patience: float, *, complete: bool) -> Verdict:
        if not complete:
            return before_its_time(found, f"the API did not give its lists within {patience:g} s")
        if not self._is_quiet():
            return before_its_time(found, f"events still arrived after {patience:g} s")
        return self._in_time(found)

    def _in_time(self, found: Sequence[Violation]) -> Verdict:
        if not self.history.deliveries:
            return Verdict(
                [Violation("nothing happened", "no event arrived: there was nothing to judge"), *found]
            )
        return Verdict(found)

    async def _look(self) -> tuple[list[Violation], bool]:
        """What is wrong now, and whether everything could be looked at."""
        self._read_on()
        settled = await self.operator.settle()
        if self.history.stolen:
            settled = await self.operator.leave_it_to_the_timer() and settled
        contacts = await whole_list(f"{self.operator.url}/contacts")
        self.history.still_parked, self.history.found = self.operator.parked, [*map(_found, contacts or [])]
        second = await self._second_look()
        found = [*check(self.history, Contacts()), *(second or [])]
        return found, settled and contacts is not None and second is not None

    async def _second_look(self) -> list[Violation] | None:
        """What the directory gets wrong; None when it could not be read."""
        entries = await whole_list(f"{self.operator.url}/directory")
        set_aside = await self.operator.set_aside()
        if entries is None or set_aside is None:
            return None
        reasons = {str(each["eventId"]): str(each["reason"]) for each in set_aside}
        return at_rest(self.history.found, [*map(_shown, entries)], reasons, Contacts())

    def _read_on(self) -> None:
        for reader in self._readers:
            self.history.add(reader.new())

    def _is_quiet(self) -> bool:
        newest = max(
            (delivery.at for each in self.history.deliveries.values() for delivery in each), default=0.0
        )
        return time.monotonic() - newest > QUIET_SECONDS


def _found(contact: Mapping[str, Any]) -> FinallyListed:
    return FinallyListed(
        at=time.monotonic(), aggregate=contact["id"], sequence=sequence_of(contact), body=dict(contact)
    )


def _shown(entry: Mapping[str, Any]) -> SeenEntry:
    """An entry as the directory lists it."""
    return SeenEntry(
        at=time.monotonic(),
        aggregate=entry["id"],
        sequence=entry["sequence"],
        event=None,
        applied_at="",
        data=dict(entry),
    )

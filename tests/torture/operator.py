"""The operator discards broken events and replays the contacts behind them, and applies what was set aside.

The operator uses the service's own administrative calls, during the faults and afterwards, and writes down the parked
events that it finds before it changes them.
"""

import contextlib
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from outbox_simulation.invariants.records import DiscardAsked, Discarded, Free, SeenParked
from tests.support import once
from tests.torture.journal import Journal
from tests.torture.listing import whole_list

_REASON = "the torture test broke it"
_TIMEOUT_SECONDS = 12.0
_OK, _DONE, _CLOSED = 200, 204, 404
_TIMER = "watch_contact_directory"


@dataclass
class Operator:
    """Deals with whatever is parked. ``broken``: documents to be discarded; all else is replayed."""

    url: str
    journal: Journal
    broken: set[str] = field(default_factory=set)
    parked: list[SeenParked] = field(default_factory=list)
    """As the last look found it."""
    _seen: set[tuple[str, str]] = field(default_factory=set)

    async def settle(self) -> bool:
        """Look once and deal with what is there; whether the list could be read."""
        parked = await whole_list(f"{self.url}/stuck")
        if parked is None:
            return False
        parked = [each for each in parked if each["kind"] == "event"]
        self.parked = [*map(_parked, parked)]
        for item, seen in zip(parked, self.parked, strict=True):
            if (item["id"], item["since"]) not in self._seen:
                self._seen.add((item["id"], item["since"]))
                self.journal.write(seen)
            if item["eventId"] in self.broken:
                await self._discard(item)
        of_contacts = {str(item["aggregateId"]): str(item["id"]) for item in parked if item["aggregateId"]}
        for contact, stuck_id in sorted(of_contacts.items()):
            await self._retry(contact, stuck_id)
        return True

    async def apply_what_was_set_aside(self) -> bool:
        """Collect the dead letters, and apply every record, the oldest first; whether none is left."""
        collected = await self._post("dead-letters/collect", {})
        waiting = await self.set_aside()
        if collected is None or collected.status != _OK or waiting is None:
            return False
        answers = [await self._post(f"stuck/{item['id']}/retry", {}) for item in waiting]
        left = [answer for answer in answers if answer is None or answer.status not in (_OK, _CLOSED)]
        found = collected.json()
        return (
            not left and not found["collected"] and bool(found.get("emptied", True))
        )  # the version before does not return it

    async def leave_it_to_the_timer(self) -> bool:
        """Collect the dead letters, and run the timer while something is set aside; whether nothing is.

        Nobody but the timer tries what is set aside from here on: what it does not try stays there, and is found.
        """
        collected = await self._post("dead-letters/collect", {})
        waiting = await self.set_aside()
        if collected is None or collected.status != _OK or waiting is None:
            return False
        if waiting:
            await self._send(f"{self.url.removesuffix('/api')}/admin/functions/{_TIMER}", {})
        found = collected.json()
        return not found["collected"] and bool(found["emptied"])

    async def set_aside(self) -> list[dict[str, Any]] | None:
        """What the subscriber has set aside; None when it could not be read."""
        stuck = await whole_list(f"{self.url}/stuck")
        return None if stuck is None else [each for each in stuck if each["kind"] == "message"]

    async def _discard(self, item: dict[str, Any]) -> None:
        self.journal.write(DiscardAsked(at=time.monotonic(), document=item["eventId"]))
        answer = await self._post(f"stuck/{item['id']}/discard", {"reason": _REASON})
        if answer is not None and answer.status == _DONE:
            self.journal.write(Discarded(at=time.monotonic(), document=item["eventId"]))

    async def _retry(self, contact: str, stuck_id: str) -> None:
        answer = await self._post(f"stuck/{stuck_id}/retry", {})
        if answer is not None and answer.status == _OK and not answer.json()["remaining"]:
            self.journal.write(Free(at=time.monotonic(), aggregate=contact, time=datetime.now(UTC)))

    async def _post(self, path: str, body: dict[str, str]) -> once.Answer | None:
        return await self._send(f"{self.url}/{path}", body)

    async def _send(self, url: str, body: dict[str, str]) -> once.Answer | None:
        """The answer, if one came. What fails now is done at the next look."""
        with contextlib.suppress(once.NotSent, once.NoAnswer):
            return await once.send("POST", url, body=body, within=_TIMEOUT_SECONDS)
        return None


def _parked(item: dict[str, Any]) -> SeenParked:
    return SeenParked(
        at=time.monotonic(),
        event=item["eventId"],
        aggregate=item["aggregateId"],
        action=item.get("action"),
        reason=item.get("reason"),
        parked_at=item["since"],
    )

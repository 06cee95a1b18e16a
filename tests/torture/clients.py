"""Clients write down each request before they send it, and each answer when it comes; nothing is reconstructed.

An attempt is sent at most once (``tests.support.once``). An attempt that could not connect was certainly not served.
Every other attempt without an answer, and every 503, leaves open whether the change was made. Only creations with an
Idempotency-Key, and deletions, are repeated, each as a new attempt. A patch is not repeated: its values are used once,
so that they show how often the patch was applied.
"""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from outbox_simulation.invariants.history import cause
from outbox_simulation.invariants.records import Answered, Attempted, Call, Outcome
from tests.support import once
from tests.torture.contacts import UPDATED, expected, sequence_of, value_of
from tests.torture.journal import Journal

REFUSALS = {400, 404, 405, 409, 410, 412, 413, 415, 422, 429}
"""These say that nothing was changed."""

TIMEOUT_SECONDS = 12.0
CONTACTS_AT_ONCE = 24
_FEWEST_CONTACTS = 6
_PAUSE_AFTER_FAILURE = 0.3
_PADDING = dict.fromkeys(("street", "houseNumber", "postalCode", "city", "country"), "\U0001f4ee" * 250)
"""As many bytes as a company can have besides its name."""


@dataclass
class Directory:
    """The contacts that are believed to be there, with the newest ETag seen; shared by all clients."""

    etags: dict[str, str | None] = field(default_factory=dict)

    def saw(self, contact: str, etag: str | None) -> None:
        self.etags[contact] = etag

    def gone(self, contact: str) -> None:
        self.etags.pop(contact, None)


@dataclass
class Client:
    """Asks for one thing after the other until asked to stop."""

    name: str
    urls: Sequence[str]
    """Of all hosts; each request goes to any of them."""
    journal: Journal
    chance: random.Random
    directory: Directory
    stopping: asyncio.Event
    pauses: tuple[float, float]
    numbers: Iterator[int] = field(default_factory=count)

    async def run(self) -> None:
        """What is under way when asked to stop is brought to its end."""
        while not self.stopping.is_set():
            if not await self._one():
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)
            await asyncio.sleep(self.chance.uniform(*self.pauses))

    async def create(self) -> str | None:
        """A new contact; None when it is not known to be there."""
        answer = await _Request(self, "create", tuple(UPDATED)).send()
        return self._created(answer)

    async def patch_company(self, contact: str) -> Answered:
        """The company, as large as it may be: the event has about 5 KB."""
        return await _Request(self, "change", ("company",), contact=contact, padded=True).send()

    async def patch(self, contact: str) -> Answered:
        """Some properties at once; now and then only if the contact is as last seen."""
        properties = tuple(sorted(self.chance.sample(sorted(UPDATED), self.chance.randint(1, len(UPDATED)))))
        etag = self.directory.etags.get(contact) if self.chance.random() < 0.2 else None
        return await _Request(self, "change", properties, contact=contact, if_match=etag).send()

    async def _one(self) -> bool:
        """Whether the service was there."""
        contacts = sorted(self.directory.etags)
        wish = self.chance.random()
        if len(contacts) < _FEWEST_CONTACTS or (wish < 0.15 and len(contacts) < CONTACTS_AT_ONCE):
            if self.chance.random() < 0.5:
                return await self._create_once()
            return await self.create() is not None
        contact = self.chance.choice(contacts)
        if wish > 0.95:
            return await self.delete(contact)
        answer = await self.patch(contact)
        return answer.outcome != "unknown"

    async def _create_once(self) -> bool:
        """Repeat until the answer is known: the key makes it happen once."""
        key = f"{self.name}-{self.chance.getrandbits(64):x}"
        request = _Request(self, "create", tuple(UPDATED), key=key)
        answers = await asyncio.gather(*(request.send() for _ in range(self.chance.choice([1, 1, 1, 2]))))
        while not any(answer.outcome == "acknowledged" for answer in answers):
            if any(answer.status in REFUSALS - {429} for answer in answers):
                return True  # no repetition would change that; the checker has a rule about it
            await asyncio.sleep(_PAUSE_AFTER_FAILURE)
            answers = [await request.send()]
        if self.chance.random() < 0.2:
            await request.send()
        if self.chance.random() < 0.2:
            await _Request(self, "create", tuple(UPDATED), key=key, reuses_key=True).send()
        return (
            self._created(next(answer for answer in answers if answer.outcome == "acknowledged")) is not None
        )

    def _created(self, answer: Answered) -> str | None:
        if answer.outcome != "acknowledged" or answer.body is None:
            return None
        contact = str(answer.body["id"])
        self.directory.saw(contact, None)
        return contact

    async def delete(self, contact: str) -> bool:
        """Whether the service was there. A deletion whose answer is lost is repeated."""
        self.directory.gone(contact)
        request = _Request(self, "delete", (), contact=contact)
        answer = await request.send()
        if answer.outcome == "unknown":
            await asyncio.sleep(_PAUSE_AFTER_FAILURE)
            answer = await request.send()
        return answer.outcome != "unknown"


class _Request:
    """One operation, to be sent once or more."""

    def __init__(
        self,
        client: Client,
        call: Call,
        properties: tuple[str, ...],
        *,
        contact: str | None = None,
        key: str | None = None,
        reuses_key: bool = False,
        if_match: str | None = None,
        padded: bool = False,
    ) -> None:
        self._client = client
        self._padded = padded
        self._numbers = count(1)
        self._operation = f"{client.name}-{next(client.numbers)}"
        self._properties = properties
        self._asked = Attempted(
            at=time.monotonic(),
            operation=self._operation,
            number=0,
            call=call,
            aggregate=contact,
            events=expected(call, self._operation, properties),
            key=key,
            reuses_key=reuses_key,
            if_match=if_match,
        )
        self._headers = {"Idempotency-Key": key} if key else {}
        self._headers |= {"If-Match": if_match} if if_match else {}

    async def send(self) -> Answered:
        number = next(self._numbers)
        asked = {name: value for name, value in self._asked if name not in ("at", "number")}
        self._client.journal.write(Attempted(at=time.monotonic(), number=number, **asked))
        answer = await self._exchange(number)
        self._client.journal.write(answer)
        return answer

    async def _exchange(self, number: int) -> Answered:
        contact = self._asked.aggregate
        method = {"create": "POST", "change": "PATCH", "delete": "DELETE"}[self._asked.call]
        host = self._client.chance.choice(self._client.urls)
        url = f"{host}/contacts" + (f"/{contact}" if contact else "")
        headers = self._headers | {"x-correlation-id": cause(self._operation, number)}
        try:
            answer = await once.send(method, url, body=self._body(), headers=headers, within=TIMEOUT_SECONDS)
        except once.NotSent:
            return self._answered(number, "refused")
        except once.NoAnswer:
            return self._answered(number, "unknown")
        found = answer.json() if answer.status in (200, 201) else None
        if found and contact in self._client.directory.etags:
            self._client.directory.saw(str(contact), answer.headers.get("ETag"))
        return self._answered(
            number,
            outcome_of(answer.status),
            status=answer.status,
            replayed=answer.headers.get("Idempotency-Replayed") == "true",
            aggregate=str(found["id"]) if found and "id" in found else None,
            sequence=sequence_of(found),
            body=found,
            etag=answer.headers.get("ETag"),
        )

    def _answered(self, number: int, outcome: Outcome, **fields: Any) -> Answered:
        return Answered(
            at=time.monotonic(), operation=self._operation, number=number, outcome=outcome, **fields
        )

    def _body(self) -> dict[str, Any] | None:
        if self._asked.call == "delete":
            return None
        wanted = {name: value_of(self._operation, name) for name in self._properties}
        body: dict[str, Any] = {name: wanted[name] for name in ("email", "description") if name in wanted}
        if "name" in wanted:
            body["name"] = {"firstName": wanted["name"], "lastName": "Doe"}
        if "company" in wanted:
            body["company"] = {"companyName": wanted["company"]} | (_PADDING if self._padded else {})
        return body


def outcome_of(status: int) -> Outcome:
    """What a status says about the change."""
    if 200 <= status < 300:
        return "acknowledged"
    return "refused" if status in REFUSALS else "unknown"

"""Storage queues under the real azure-storage-queue SDK, with only aiohttp's session replaced.

A queue keeps no order and drops no copy. The faults of each request are drawn, with the bus's chances: it cannot leave,
it is lost on its way there or back, or arrives long after its sender has timed out; the service
is busy, or fails; a message is refused for good, is seen again before its time, comes again after it was deleted, is
taken by another receiver, or is in the poison queue.
"""

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import aiohttp

from cosmos_outbox.testing.messages import Message
from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine import sdk_clock
from outbox_simulation.engine.bus_queue import Sent, Taken
from outbox_simulation.engine.fault_injection import FaultyTransport
from outbox_simulation.engine.http import answer, fail, no_connection, session
from outbox_simulation.engine.storage_account import FOR_EVER, HeldMessage, StorageAccount
from outbox_simulation.engine.storage_rest import failure, queue_of, serve, text_of
from outbox_simulation.invariants.language import SKIP_MARKER

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport

PACKAGES = ("azure.storage.queue",)
CONNECTION = "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=a2V5;EndpointSuffix=storage.invalid"
POISON = "-poison"

_LATEST_SECONDS = 30.0
"""The longest time after which a timed out request arrives."""
_SOON_SECONDS = 2.0
_REFUSED_AGAIN = 0.5
"""The share of repeated sends of refused events that are refused again."""
_OUT_OF_ORDER = 1 / 3
"""The share of answers whose messages are out of order."""
_REFUSAL = (400, "OutOfRangeInput")


class _Left:
    """The number of messages that wait for a subscription, its poison queue included."""

    def __init__(self, queues: "StorageQueues", name: str) -> None:
        self._queues, self._name = queues, name

    def __len__(self) -> int:
        return sum(
            self._queues.account.queue(each).count(self._queues.now())
            for each in (self._name, f"{self._name}{POISON}")
        )


class StorageQueues(FaultyTransport):
    """One account, with a queue for each subscription. ``taken``: every message that the first of them took."""

    def __init__(self, *subscriptions: str, **base: Any) -> None:
        """``base``: the base's arguments."""
        super().__init__(**base)
        sdk_clock.install(*PACKAGES)
        self.account = StorageAccount()
        self.queues = {name: _Left(self, name) for name in subscriptions}
        self._first = subscriptions[0]

    def http(self) -> "AsyncHttpTransport[Any, Any]":
        """Returns the HTTP transport of one SDK client."""
        from azure.core.pipeline.transport import AioHttpTransport  # noqa: PLC0415 - slow to import

        made: AsyncHttpTransport[Any, Any] = AioHttpTransport(
            session=session(self._send), session_owner=False, use_env_settings=False
        )
        return made

    # -- on the way

    async def _send(self, request: SentRequest) -> StoreResponse:
        """Sends a request. Raises aiohttp's errors."""
        waiting: asyncio.Future[StoreResponse] = asyncio.get_running_loop().create_future()
        there, back, chances = self.way_seconds(), self.way_seconds(), self.rates
        if self.is_away():
            self.later(there, lambda: fail(waiting, no_connection(request.host)))
        elif self.strikes(chances.lost_before):
            self.later(there, lambda: fail(waiting, aiohttp.ServerDisconnectedError()))
        elif self.strikes(chances.cut) or self.strikes(chances.lost_after):
            late = self._random.uniform(0.0, _LATEST_SECONDS) if self.one_of(2) else 0.0
            self.note("answer lost", queue_of(request), f"{request.method}, and it arrives {late:.1f} s late")
            self.later(there + late, lambda: self._arrive_late(request))
            self.later(there, lambda: fail(waiting, aiohttp.ServerDisconnectedError()))
        elif self.strikes(chances.busy):
            self.later(there + back, lambda: answer(waiting, failure(503, "ServerBusy")))
        elif self.strikes(chances.quota):
            if self.one_of(2):
                self.later(there, lambda: (self._carry_out(request), None)[1])
            self.later(there + back, lambda: answer(waiting, failure(500, "OperationTimedOut")))
        else:
            self.later(there, lambda: self._arrive(request, back, waiting))
        return await waiting

    def _arrive(self, request: SentRequest, back: float, waiting: "asyncio.Future[StoreResponse]") -> None:
        response = self._carry_out(request)
        self.later(back, lambda: answer(waiting, response))

    def _arrive_late(self, request: SentRequest) -> None:
        """Delivers a late copy; an event refused since is refused in this copy too, for the same reason."""
        text = text_of(request) if queue_of(request) in self.queues else None
        if text is None or str(self._sent(text).message.data.get("id")) not in self.refused:
            self._carry_out(request)

    # -- at the service

    def _carry_out(self, request: SentRequest) -> StoreResponse:
        name = queue_of(request)
        if name.removesuffix(POISON) not in self.queues:
            return self._serve(request)
        queue, text = self.account.queue(name), text_of(request)
        if text is not None:
            return self._put(request, name, text)
        before = {each.id: (each, each.dequeued) for each in queue.messages}
        if request.method == "DELETE" and self.strikes(self.rates.again):
            response = self._serve(request)
            if response.status == 204:  # the message is deleted
                queue.messages.append(before[request.path.split("/")[-1]][0])
            return response
        response = self._serve(request)
        left = {each.id for each in queue.messages}
        for held, dequeued in before.values():
            if held.dequeued > dequeued:
                self._got(name, held)
            elif held.id not in left:
                self._gone(name.removesuffix(POISON), held)
        return response

    def _serve(self, request: SentRequest) -> StoreResponse:
        return serve(self.account, request, self.now(), self.wall, self._ordered)

    def _ordered(self, messages: list[HeldMessage]) -> Iterable[HeldMessage]:
        if not self.rates.is_calm and self.strikes(_OUT_OF_ORDER):
            self._random.shuffle(messages)
        return messages

    def _put(self, request: SentRequest, name: str, text: str) -> StoreResponse:
        sent = None if name.endswith(POISON) else self._sent(text)
        if sent is None:
            return self._serve(request)
        event = str(sent.message.data.get("id"))
        if self._is_refused(sent, event):
            self.refused.add(event)
            self.note("bus refuses", sent.aggregate, event)
            return failure(*_REFUSAL)
        response = self._serve(request)
        taken = Taken(self.now(), len(self.taken) + 1, sent)
        self.note("bus takes", sent.aggregate, f"{sent.message.id} as {taken.number}, into {name}")
        if name == self._first:
            self.taken.append(taken)
        self._meets(name, sent)
        return response

    def _is_refused(self, sent: Sent, event: str) -> bool:
        """Draws whether it is refused; one that was refused is often refused again: its reason remains."""
        if sent.message.data.get("action") == SKIP_MARKER:
            return False  # it is small and has only known values
        if self.refuses(sent.aggregate, event):
            return True
        if not self.rates.refuse_one:
            return False
        return self.strikes(_REFUSED_AGAIN if event in self.refused else self.rates.refuse_one)

    def _meets(self, name: str, sent: Sent) -> None:
        """Draws the faults of the message that was put into a queue last."""
        queue = self.account.queue(name)
        if self.strikes(self.rates.buried):
            self.note("buried", sent.aggregate, sent.message.id)
            self.account.queue(f"{name}{POISON}").put(queue.messages.pop().text, self.now(), ttl=FOR_EVER)
        elif isinstance(sent.message.data.get("sequence"), int) and (
            self.strikes(self.rates.stolen) or self.steals(sent.aggregate)
        ):
            self.note("stolen", sent.aggregate, sent.message.id)
            queue.messages.pop()

    def _got(self, name: str, held: HeldMessage) -> None:
        sent = self._sent(held.text)
        self.note("bus gives", sent.aggregate, f"{sent.message.id} of {name} for the {held.dequeued}. time")
        if self.strikes(self.rates.lock_lost):
            seconds = self._random.uniform(0.0, _SOON_SECONDS)
            self.later(seconds, lambda: setattr(held, "visible", self.now()))

    def _gone(self, name: str, held: HeldMessage) -> None:
        """Removes a message; it is done when no copy of it is left."""
        sent = self._sent(held.text)
        left = [*self.account.queue(name).messages, *self.account.queue(f"{name}{POISON}").messages]
        copies = any(self._sent(each.text).message.id == sent.message.id for each in left)
        self.note("one copy less" if copies else "completed", sent.aggregate, sent.message.id)

    def _sent(self, text: str) -> Sent:
        """Returns a message as a subscriber gets it. The aggregate replaces the session, which queues lack."""
        document = json.loads(text if text.startswith("{") else base64.b64decode(text))
        body = json.dumps(document["data"]).encode()
        aggregate = str(document["subject"])
        return Sent(Message(body, {}, str(document.get("messageid") or document["id"])), aggregate, aggregate)

"""The broker of the full form: the real SDK of Service Bus speaks AMQP to devstack's broker, over lines in memory.

What befalls it is drawn with the chances that the quick form has: what a send meets at the broker, what a message and a
lock meet in it, and what befalls the lines: cut, half open, slow.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from random import Random
from typing import Any

from cosmos_outbox.servicebus import in_time
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.testing.messages import Message
from devstack.servicebus.codec.errors import ARGUMENT_ERROR, AmqpError
from devstack.servicebus.codec.message import read_application_properties, read_data, read_properties
from devstack.servicebus.in_memory import Fault, Faults, Onlooker, in_memory
from devstack.settings import SERVICEBUS_CONNECTION
from outbox_simulation.engine import sdk_clock_servicebus
from outbox_simulation.engine.amqp import AmqpNetwork, Lines
from outbox_simulation.engine.befalls import CALM, Befalls
from outbox_simulation.engine.bus_queue import Note, Rules, Sent, Taken
from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop
from outbox_simulation.judging.language import NOTICE

CONNECTION = SERVICEBUS_CONNECTION.format("bus.invalid")

_WRITES_OF_A_CALL = 10
"""So many, about: a line meets at each write what the quick form meets at a call."""
_SLOW = 0.02
"""The share of the writes that take up to the longest way."""
_MESSAGES_OF_A_SEND = 3
"""So many, about: each is refused with that share of what the quick form has for a send."""
_REFUSED_SECONDS = 5.0, 60.0
"""So long what was refused is refused again: the sender finds it among others by sending again."""
_LOCK_SECONDS = 2.0
"""A lock that is lost is lost within so long after its holder got a message."""


class AmqpBus(Onlooker):
    """One topic and its subscriptions, as :class:`outbox_simulation.engine.bus.Bus` is for the quick form."""

    def __init__(  # noqa: PLR0913 - as of the quick form
        self,
        loop: Loop,
        topic: str,
        *subscriptions: str,
        random: Random,
        rules: Rules,
        epoch: datetime,
        note: Note,
    ) -> None:
        sdk_clock_servicebus.install()
        servicebus_client(
            Connection(CONNECTION), None
        )  # it reads the trusted certificates, once in a process
        self.rules, self.note = rules, note
        self.taken: list[Taken] = []
        """What the topic took, in its order; a duplicate is not among them."""
        self.queues = {name: _Left(self, f"{topic}/subscriptions/{name}") for name in subscriptions}
        """How many messages each subscription holds, its dead letters among them."""
        self.steals: Callable[[str], bool] = lambda _aggregate: False
        """Whether somebody else gets the message of this aggregate that is put into a subscription now."""
        self.refuses: Callable[[str, str], bool] = lambda _aggregate, _event: False
        """Whether this event of this aggregate is refused for good."""
        self._loop, self._topic, self._random, self._epoch = loop, topic, random, epoch
        self._refused: dict[str, float] = {}
        """By message id, until when."""
        self._network = AmqpNetwork(random, note=note)
        self.befalls = CALM
        loop.network = self._network.connect
        loop.at_the_end.append(in_time.left.clear)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """As long as there is the broker. Entered inside the running loop."""
        config = _config(self._topic, self.queues, self.rules)
        faults = _Drawn(self)
        with in_memory(clock=self._clock, chance=self._random, config=config, faults=faults) as broker:
            broker.show(self)
            self.broker = broker
            self._network.serve = broker.connection
            yield

    # -- what befalls it

    @property
    def befalls(self) -> Befalls:
        """The chances of one call."""
        return self._befalls

    @befalls.setter
    def befalls(self, befalls: Befalls) -> None:
        self._befalls = befalls
        cut, longest = befalls.cut / _WRITES_OF_A_CALL, befalls.longest_way_seconds
        slow = _SLOW if longest > 0.1 else 0.0
        self._network.lines = Lines(
            refused=befalls.cut, cut=cut * 2 / 3, half_open=cut / 3, slow=slow, longest_way_seconds=longest
        )

    def befall(self, chance: float) -> bool:
        """Whether it happens now."""
        return chance > 0 and self._random.random() < chance

    def go_away(self, seconds: float) -> None:
        """Nobody reaches the broker for so long."""
        self._network.go_away(seconds)

    def ended(self, instance: SimulatedInstance) -> None:
        """A process is gone: its machine tells the broker so, or does not."""
        self._network.end_of(instance, told=self.befall(1 / 2))

    # -- what the broker does

    def check(self, path: str, parsed: Any) -> None:
        """See the base."""
        message, now = _message(parsed), self._loop.time()
        if message.data.get("action") == NOTICE:  # it is small, and all in it is well known
            return
        if self.refuses(_aggregate(message), message.id):
            self.note("bus refuses", _aggregate(message), message.id)
        elif self._refused.get(message.id, 0.0) <= now:
            again = message.id in self._refused
            if not self.befall(0.5 if again else self.befalls.refuse_one / _MESSAGES_OF_A_SEND):
                return
            self._refused[message.id] = now + self._random.uniform(*_REFUSED_SECONDS)
            self.note("bus refuses", _aggregate(message), message.id)
        raise AmqpError(ARGUMENT_ERROR, "A value is outside the limits of this simulation.")

    def accepted(self, path: str, parsed: Any, number: int) -> None:
        """See the base."""
        message = _message(parsed)
        aggregate = _aggregate(message)
        properties = read_properties(parsed)
        sent = Sent(
            message, aggregate, str(properties.get("group-id")), subject=str(properties.get("subject"))
        )
        self.taken.append(Taken(self._loop.time(), len(self.taken) + 1, sent))
        self.note("bus takes", aggregate, f"{message.id} as {len(self.taken)}")
        for queue in self.queues.values():
            if self.befall(self.befalls.buried) and self.broker.bury(
                queue.path, message.id, "buried by somebody else"
            ):
                continue
            if "sequence" in message.properties and (
                self.befall(self.befalls.stolen) or self.steals(aggregate)
            ):
                self.broker.lose(queue.path, message.id)
                self.note("stolen", aggregate, message.id)

    def dropped(self, path: str, parsed: Any) -> None:
        """See the base."""
        message = _message(parsed)
        self.note("bus drops", _aggregate(message), message.id)

    def given(self, path: str, message: Any) -> None:
        """See the base."""
        told = _message(message.parsed)
        self.note("bus gives", _aggregate(told), told.id)
        if message.session_id is not None and not message.dead and self.befall(self.befalls.lock_lost):
            seconds = self._random.uniform(0.0, _LOCK_SECONDS)
            context = self._loop.outside()
            self._loop.call_later(seconds, self.broker.lose_lock, path, message.session_id, context=context)

    def completed(self, path: str, message: Any) -> None:
        """See the base."""
        told = _message(message.parsed)
        if not message.dead:
            self.note("completed", _aggregate(told), told.id)

    def buried(self, path: str, message: Any) -> None:
        """See the base."""
        told = _message(message.parsed)
        self.note("dead letter", _aggregate(told), told.id)

    def lock_over(self, path: str, session: str) -> None:
        """See the base."""
        self.note("lock over", session)

    def _clock(self) -> float:
        return self._epoch.timestamp() + self._loop.time()


class _Left:
    """A subscription, as far as a world asks."""

    def __init__(self, bus: AmqpBus, path: str) -> None:
        self.path = path
        self._bus = bus

    def __len__(self) -> int:
        return self._bus.broker.messages(self.path)


class _Drawn(Faults):
    """What a send meets, drawn at each."""

    def __init__(self, bus: AmqpBus) -> None:
        super().__init__(lambda: 0.0, Random(0))  # noqa: S311 - nothing is drawn from it
        self._bus = bus

    def happens_to_send(self, kind: str) -> bool:
        """See the base."""
        bus = self._bus
        chances = bus.befalls
        if kind == "fail-before-commit" and bus.befall(chances.outage):
            bus.go_away(bus._random.uniform(0.0, chances.longest_outage_seconds))  # noqa: SLF001
            return False
        chance = {
            "fail-before-commit": chances.lost_before,
            "drop-after-commit": chances.lost_after,
            "throttle": chances.busy,
            "full": chances.quota,
        }[kind]
        happens = bus.befall(chance)
        if happens:
            bus.note("send failed", detail=kind)
        return happens

    def happens(self, kind: str) -> Fault | None:
        """See the base."""
        if kind == "refuse-mixed" and self._bus.befall(self._bus.befalls.refuse_mix):
            self._bus.note("bus refuses", detail="a batch of several sessions")
            return Fault(kind="refuse-mixed")
        return None


def _message(parsed: Any) -> Message:
    return Message(read_data(parsed), read_application_properties(parsed), parsed.message_id or "")


def _aggregate(message: Message) -> str:
    return str(message.properties.get("cloudEvents_subject"))


def _config(topic: str, subscriptions: Mapping[str, object], rules: Rules) -> dict[str, Any]:
    window = {
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": f"PT{rules.duplicate_window_seconds:g}S",
    }
    lives = {
        "RequiresSession": True,
        "LockDuration": f"PT{rules.lock_seconds:g}S",
        "MaxDeliveryCount": rules.max_deliveries,
    }
    told = {
        "Name": topic,
        "Properties": window,
        "Subscriptions": [{"Name": name, "Properties": lives} for name in subscriptions],
    }
    return {"UserConfig": {"Namespaces": [{"Name": "simulated", "Topics": [told]}]}}

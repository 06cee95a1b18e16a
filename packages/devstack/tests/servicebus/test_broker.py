"""What the broker does that the session model leaves out: plain queues, time to live, schedules, quotas, partitions."""

from collections.abc import Callable

import pytest

from devstack.servicebus.broker.deadlines import Deadlines
from devstack.servicebus.broker.description import Description, default_rule
from devstack.servicebus.broker.duplicates import DuplicateWindow
from devstack.servicebus.broker.entity import Entity
from devstack.servicebus.broker.namespace import Namespace
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.ready import Ready, SequenceIndex
from devstack.servicebus.broker.settlement import Settlement
from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.errors import AmqpError
from devstack.servicebus.codec.message import ParsedMessage, parse, read_application_properties
from devstack.testing.amqp import message
from servicebus.test_broker_model import MemoryJournal

NOW = 1_000_000


def make(**properties: object) -> tuple[Namespace, Entity]:
    namespace = Namespace(MemoryJournal())
    return namespace, namespace.add(
        1, Description.model_validate({"path": "q", "kind": "queue", **properties})
    )


def advance(namespace: Namespace, entity: Entity, now_ms: int) -> None:
    namespace.watch(entity)
    namespace.advance(now_ms)


def send(
    namespace: Namespace, entity: Entity, *raws: bytes, now_ms: int = NOW, batch: bool = False
) -> list[int]:
    return namespace.send(entity, [parse(raw) for raw in raws], now_ms, batch=batch)


def with_ttl(milliseconds: int) -> bytes:
    return e.described(0x70, e.encode_list([b"\x40", b"\x40", e.uint(milliseconds)])) + message(b"short")


def with_annotation(
    name: str, value: bytes, *, message_id: str | None = None, session_id: str | None = None
) -> bytes:
    annotations = e.described(0x72, e.encode_map([e.symbol(name), value]))
    return annotations + message(message_id=message_id, session_id=session_id)


def reason(parsed: ParsedMessage) -> object:
    return read_application_properties(parsed).get("DeadLetterReason")


def dead(entity: Entity) -> Queue:
    assert entity.queue.dead_letter is not None
    return entity.queue.dead_letter


@pytest.mark.parametrize("to_dead_letter", [True, False])
def test_the_shorter_time_to_live_counts(to_dead_letter: bool) -> None:
    namespace, entity = make(default_ttl_ms=5000, dead_letter_on_expiration=to_dead_letter)
    send(namespace, entity, with_ttl(1000), with_ttl(60_000))

    advance(namespace, entity, NOW + 1000)
    assert entity.queue.active_count == 1
    advance(namespace, entity, NOW + 5000)

    assert entity.queue.active_count == 0
    assert dead(entity).message_count == (2 if to_dead_letter else 0)
    if to_dead_letter:
        assert [reason(m.parsed) for m in dead(entity).browse(0)] == ["TTLExpiredException"] * 2


def test_a_locked_message_expires_when_it_is_given_back() -> None:
    namespace, entity = make(lock_ms=60_000)
    send(namespace, entity, with_ttl(1000))
    taken = entity.queue.take(NOW)
    assert taken is not None
    assert taken.token is not None

    advance(namespace, entity, NOW + 2000)
    assert entity.queue.active_count == 1
    entity.queue.settle(taken.token, Settlement.ABANDON, NOW + 2000)

    assert entity.queue.active_count == 0


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_message_that_is_due_already_is_active_at_once_and_has_a_number(kind: str) -> None:
    namespace, entity = make(kind=kind)
    past = e.timestamp(NOW - 1)

    numbers = send(namespace, entity, *[with_annotation("x-opt-scheduled-enqueue-time", past)] * 2)

    assert numbers == [1, 2]
    assert entity.queue.scheduled_count == 0


def test_a_batch_is_accepted_whole_or_not_at_all() -> None:
    namespace, entity = make(requires_session=True)

    with pytest.raises(AmqpError, match=r"not-allowed.*SessionId"):
        send(namespace, entity, message(session_id="s"), message(), batch=True)

    assert entity.queue.message_count == 0
    too_long = "x" * 129
    for raw in (message(session_id=too_long), message(session_id="s", message_id=too_long)):
        with pytest.raises(AmqpError, match="argument-error"):
            send(namespace, entity, raw)


def test_a_full_entity_refuses_and_takes_again_when_there_is_room() -> None:
    namespace, entity = make(max_size_megabytes=1)
    for _ in range(4):
        send(namespace, entity, message(b"x" * 250_000))

    with pytest.raises(AmqpError, match="resource-limit-exceeded"):
        send(namespace, entity, message(b"x" * 250_000))
    entity.queue.take_and_delete()

    send(namespace, entity, message(b"x" * 250_000))


def test_a_partitioned_entity_dedups_by_partition_key_and_refuses_batches() -> None:
    namespace, entity = make(requires_duplicate_detection=True, partitioned=True)
    key = "x-opt-partition-key"

    send(namespace, entity, with_annotation(key, e.string("a"), message_id="1"))
    send(namespace, entity, with_annotation(key, e.string("b"), message_id="1"))
    send(namespace, entity, with_annotation(key, e.string("a"), message_id="1"))

    assert entity.queue.message_count == 2
    with pytest.raises(AmqpError, match=r"not-allowed.*[Bb]atch"):
        send(namespace, entity, message(message_id="2"), batch=True)


def test_a_partition_key_must_be_the_session_id() -> None:
    namespace, entity = make(requires_session=True)

    with pytest.raises(AmqpError, match="argument-error"):
        send(namespace, entity, with_annotation("x-opt-partition-key", e.string("a"), session_id="b"))


def test_a_session_subscription_dead_letters_a_message_without_session() -> None:
    namespace, topic = make(path="t", kind="topic")
    plain = namespace.add(
        2, Description(path="t/subscriptions/p", kind="subscription", rules=(default_rule(),))
    )
    sessions = namespace.add(
        3,
        Description(
            path="t/subscriptions/s", kind="subscription", requires_session=True, rules=(default_rule(),)
        ),
    )

    send(namespace, topic, message())

    assert plain.queue.active_count == 1
    assert sessions.queue.active_count == 0
    assert [reason(m.parsed) for m in dead(sessions).browse(0)] == ["Session id is null."]


def test_a_window_starts_with_the_first_acceptance_and_is_not_renewed() -> None:
    window = DuplicateWindow(1000)

    assert window.accept("a", 0)
    assert not window.accept("a", 999)
    assert window.accept("a", 1000)
    assert not window.accept("a", 1999)
    window.expire(2000)
    assert len(window) == 0


def _ready(alive: Callable[[int], bool]) -> Ready:
    return Ready(alive)


def test_structures_do_not_grow_with_what_is_gone() -> None:
    alive: set[int] = set()
    ready, index = _ready(alive.__contains__), SequenceIndex(alive.__contains__)
    deadlines: Deadlines[int] = Deadlines(lambda number: number if number in alive else None)

    for number in range(20_000):
        alive.add(number)
        ready.add(number)
        index.add(number)
        deadlines.add(number, number)
        alive.discard(number)

    assert len(deadlines) < 1000
    assert len(ready._heap) < 1000
    assert len(index._numbers) < 1000

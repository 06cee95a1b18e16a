"""``$management`` of one entity does what a link cannot, under the same locks, and answers each request with a status.

Source of operations, names and codes: the request/response operations of Service Bus (AMQP request-response guide).
"""

from collections.abc import Callable
from typing import Any

from devstack.servicebus.amqp.client import Client
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Faults
from devstack.servicebus.amqp.link import OutgoingLink
from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.message import Message
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.rules import with_rule, without_rule
from devstack.servicebus.broker.sessions import SessionLock
from devstack.servicebus.broker.settlement import DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, Settlement
from devstack.servicebus.codec import errors
from devstack.servicebus.codec.errors import AmqpError
from devstack.servicebus.codec.message import (
    ParsedMessage,
    parse,
    read_application_properties,
    read_properties,
    read_value,
)
from devstack.servicebus.codec.values import Array, Int, Timestamp
from devstack.servicebus.delivery import lock_token, payload
from devstack.servicebus.management_body import (
    NO_CONTENT,
    OK,
    answer,
    listed,
    lock_tag,
    number,
    refusal,
    text,
    wanted_session,
)
from devstack.servicebus.receiving import QueueSource
from devstack.servicebus.rule_codec import read_rule, write_rule
from devstack.servicebus.sending import accept

MAX_PEEK_BYTES = 262_144
"""A page of peeked messages is cut off at the size of one message, as in Azure; one message always fits."""

EVERY_SESSION_MS = 253_402_300_800_000
"""As ``last-updated-time`` this asks for sessions with messages or state, whenever it was set."""

_DISPOSITIONS = {
    "completed": Settlement.COMPLETE,
    "abandoned": Settlement.ABANDON,
    "suspended": Settlement.DEAD_LETTER,
    "defered": Settlement.DEFER,
    "renewed": None,
}

Answer = tuple[int, dict[str, Any] | None]


class ManagementNode:
    """The operations on one entity or sub-queue for one connection."""

    def __init__(self, engine: Engine, faults: Faults, client: Client, path: str) -> None:
        self._engine = engine
        self._faults = faults
        self._client = client
        self._path = path
        self._operations: dict[str, Callable[[dict[Any, Any], SessionLock | None], Answer]] = {
            "com.microsoft:renew-lock": self._renew_lock,
            "com.microsoft:renew-session-lock": self._renew_session_lock,
            "com.microsoft:peek-message": self._peek,
            "com.microsoft:receive-by-sequence-number": self._receive_by_sequence_number,
            "com.microsoft:schedule-message": self._schedule,
            "com.microsoft:cancel-scheduled-message": self._cancel_scheduled,
            "com.microsoft:update-disposition": self._update_disposition,
            "com.microsoft:get-session-state": self._get_session_state,
            "com.microsoft:set-session-state": self._set_session_state,
            "com.microsoft:get-message-sessions": self._get_message_sessions,
            "com.microsoft:enumerate-rules": self._enumerate_rules,
            "com.microsoft:add-rule": self._add_rule,
            "com.microsoft:remove-rule": self._remove_rule,
        }

    def answer(self, request: ParsedMessage) -> bytes:
        """Do what is asked; a refusal is an answer too."""
        properties = read_application_properties(request)
        correlation = read_properties(request).get("message-id")
        try:
            status, value = self._perform(properties, read_value(request))
        except AmqpError as error:
            if error.condition == errors.DECODE_ERROR:
                error = AmqpError(errors.ARGUMENT_ERROR, error.description)
            return refusal(correlation, error)
        return answer(correlation, status, value)

    def _perform(self, properties: dict[str, Any], body: Any) -> Answer:
        self._client.access.check(self._path)
        operation = self._operations.get(str(properties.get("operation")))
        if operation is None:
            raise AmqpError(
                errors.NOT_IMPLEMENTED, f"The operation '{properties.get('operation')}' is not supported."
            )
        if not isinstance(body, dict):
            raise AmqpError(errors.ARGUMENT_ERROR, "The body of a request is a map.")
        return operation(body, self._session_lock(properties.get("associated-link-name"), body))

    # -- locks

    def _renew_lock(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        queue = self._queue()
        tokens = [lock_tag(token) for token in listed(body, "lock-tokens")]
        until = queue.locks.renew(tokens, self._engine.now(), queue.description.lock_ms)
        self._engine.touch(queue)
        return OK, {"expirations": Array(tuple(Timestamp(time) for time in until))}

    def _renew_session_lock(self, body: dict[Any, Any], lock: SessionLock | None) -> Answer:
        queue = self._queue()
        until = queue.sessions.renew(
            wanted_session(body), lock, self._engine.now(), queue.description.lock_ms
        )
        self._engine.touch(queue)
        return OK, {"expiration": Timestamp(until)}

    def _update_disposition(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        queue = self._queue()
        status = body.get("disposition-status")
        if status not in _DISPOSITIONS:
            raise AmqpError(errors.ARGUMENT_ERROR, f"The disposition '{status}' is not supported.")
        how = _DISPOSITIONS[status]
        tokens = [lock_tag(token) for token in listed(body, "lock-tokens")]
        if how is None:
            return self._renew_lock(body, None)
        changes = {str(name): value for name, value in (body.get("properties-to-modify") or {}).items()}
        if how is Settlement.DEAD_LETTER:
            changes.update(
                {
                    name: body[key]
                    for key, name in (
                        ("deadletter-reason", DEAD_LETTER_REASON),
                        ("deadletter-description", DEAD_LETTER_DESCRIPTION),
                    )
                    if body.get(key) is not None
                }
            )
        for token in tokens:
            queue.settle(token, how, self._engine.now(), changes)
        self._engine.touch(queue)
        return OK, {}

    # -- reading

    def _peek(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        queue = self._queue()
        count = number(body, "message-count")
        messages: list[dict[str, Any]] = []
        size = 0
        for message in queue.browse(number(body, "from-sequence-number"), body.get("session-id")):
            encoded = payload(message, locked=message.token is not None)
            size += len(encoded)
            if len(messages) >= count or (messages and size > MAX_PEEK_BYTES):
                break
            messages.append({"message": encoded})
        return (OK, {"messages": messages}) if messages else (NO_CONTENT, None)

    def _receive_by_sequence_number(self, body: dict[Any, Any], lock: SessionLock | None) -> Answer:
        queue = self._queue()
        session_id = body.get("session-id")
        if queue.requires_session:
            queue.sessions.held(wanted_session(body), lock)
        sequences = [number for number in listed(body, "sequence-numbers") if isinstance(number, int)]
        messages = queue.take_deferred(sequences, self._engine.now(), session_id)
        deletes = body.get("receiver-settle-mode") == 0
        answers = [_deferred(message, locked=not deletes) for message in messages]
        if deletes:
            for message in messages:
                queue.delete_taken(message)
        self._engine.touch(queue)
        return OK, {"messages": answers}

    # -- scheduling

    def _schedule(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        entity = self._engine.namespace.writable(self._path)
        items = listed(body, "messages")
        if not all(isinstance(item, dict) and isinstance(item.get("message"), bytes) for item in items):
            raise AmqpError(errors.ARGUMENT_ERROR, "Each of 'messages' holds an encoded message.")
        messages = [parse(item["message"]) for item in items]
        if any("x-opt-scheduled-enqueue-time" not in message.annotations for message in messages):
            raise AmqpError(
                errors.ARGUMENT_ERROR, "A message to schedule has an x-opt-scheduled-enqueue-time."
            )
        numbers = accept(self._engine, self._faults, entity, messages, batch=len(messages) > 1)
        return OK, {"sequence-numbers": Array(tuple(numbers))}

    def _cancel_scheduled(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        queue = self._engine.namespace.writable(self._path).queue
        for sequence in listed(body, "sequence-numbers"):
            queue.cancel(sequence)
        self._engine.touch(queue)
        return OK, {}

    # -- sessions

    def _get_session_state(self, body: dict[Any, Any], lock: SessionLock | None) -> Answer:
        held = self._queue().sessions.held(wanted_session(body), lock)
        return OK, {"session-state": held.session.state}

    def _set_session_state(self, body: dict[Any, Any], lock: SessionLock | None) -> Answer:
        queue = self._queue()
        held = queue.sessions.held(wanted_session(body), lock)
        state = body.get("session-state")
        if not isinstance(state, bytes | None):
            raise AmqpError(errors.ARGUMENT_ERROR, "'session-state' is binary, or null to clear it.")
        now = self._engine.now()
        queue.sessions.set_state(held.session, state, now)
        self._engine.touch(queue)
        return OK, {}

    def _get_message_sessions(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        updated = number(body, "last-updated-time")
        listed = self._queue().sessions.listed(None if updated >= EVERY_SESSION_MS else updated)
        skip, top = number(body, "skip"), number(body, "top")
        page = sorted(listed)[skip : skip + top]
        return (
            (OK, {"skip": Int(skip + len(page)), "sessions-ids": Array(tuple(page))})
            if page
            else (NO_CONTENT, None)
        )

    # -- rules

    def _enumerate_rules(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        description = self._subscription()
        skip, top = number(body, "skip"), number(body, "top")
        page = description.rules[skip : skip + top]
        if not page:
            return NO_CONTENT, None
        return OK, {"rules": [write_rule(rule, description.created_ms) for rule in page]}

    def _add_rule(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        rule = read_rule(text(body, "rule-name"), body.get("rule-description"))
        try:
            self._engine.update(with_rule(self._subscription(), rule))
        except ValueError as error:
            raise AmqpError(errors.ARGUMENT_ERROR, f"The rule cannot be used: {error}.") from None
        return OK, None

    def _remove_rule(self, body: dict[Any, Any], _: SessionLock | None) -> Answer:
        self._engine.update(without_rule(self._subscription(), text(body, "rule-name")))
        return OK, None

    # -- inside

    def _subscription(self) -> Description:
        description = self._engine.namespace.get(self._path).description
        if description.kind != "subscription":
            raise AmqpError(errors.NOT_ALLOWED, f"'{self._path}' is no subscription: it has no rules.")
        return description

    def _queue(self) -> Queue:
        return self._engine.namespace.readable(self._path)

    def _session_lock(self, link_name: object, body: dict[Any, Any]) -> SessionLock | None:
        """The connection's lock on the session that the body names; with a link name, that receiver's only.

        .NET and JavaScript open ``$management`` on an AMQP session of its own, Python on the receiver's.
        """
        wanted = body.get("session-id")
        for _, link in self._client.links():
            source = link.source if isinstance(link, OutgoingLink) else None
            if not isinstance(source, QueueSource) or source.lock is None or source.lock.session.id != wanted:
                continue
            if source.queue.description.path.lower() == self._path.lower() and link_name in (None, link.name):
                return source.lock
        return None


def _deferred(message: Message, *, locked: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"message": payload(message, locked=locked)}
    if message.token is not None:
        answer["lock-token"] = lock_token(message.token)
    return answer

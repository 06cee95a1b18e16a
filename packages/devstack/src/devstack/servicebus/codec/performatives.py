"""A performative on the wire has exactly the fields of its definition, each with the type and default defined there.

Sources: OASIS AMQP 1.0 part 2, 2.7 (transport), part 3, 3.5 (termini) and 3.4 (outcomes), part 5, 5.3.3 (SASL).
Incoming fields that are omitted or null read as their default; a mandatory one that is missing is a decode error.
"""

from typing import Any, NamedTuple

from devstack.servicebus.codec.errors import AmqpError


class Open(NamedTuple):
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 0xFFFFFFFF
    channel_max: int = 0xFFFF
    idle_timeout: int | None = None
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Begin(NamedTuple):
    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 0xFFFFFFFF
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Source(NamedTuple):
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Any = None
    distribution_mode: Any = None
    filter: dict[Any, Any] | None = None
    default_outcome: Any = None
    outcomes: Any = None
    capabilities: Any = None


class Target(NamedTuple):
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Any = None
    capabilities: Any = None


class Attach(NamedTuple):
    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Source | None = None
    target: Target | None = None
    unsettled: Any = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Flow(NamedTuple):
    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: dict[Any, Any] | None = None


class Transfer(NamedTuple):
    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


class Disposition(NamedTuple):
    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


class ErrorField(NamedTuple):
    condition: str
    description: str | None = None
    info: dict[Any, Any] | None = None


class Detach(NamedTuple):
    handle: int
    closed: bool = False
    error: ErrorField | None = None


class End(NamedTuple):
    error: ErrorField | None = None


class Close(NamedTuple):
    error: ErrorField | None = None


class SaslMechanisms(NamedTuple):
    mechanisms: Any


class SaslInit(NamedTuple):
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslOutcome(NamedTuple):
    code: int
    additional_data: bytes | None = None


class Accepted(NamedTuple):
    """The outcome of a message that was taken."""


class Rejected(NamedTuple):
    error: ErrorField | None = None


class Released(NamedTuple):
    """The outcome of a message that was not looked at."""


class Modified(NamedTuple):
    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: dict[Any, Any] | None = None


class Received(NamedTuple):
    section_number: int
    section_offset: int


def error_field(error: AmqpError) -> ErrorField:
    """An error for the wire. All three fields are always written: azure-servicebus reads the third without a look."""
    return ErrorField(error.condition, error.description, {})


Outcome = Accepted | Rejected | Released | Modified

"""A performative on the wire has exactly the fields of its definition, each with the type and default defined there.

Sources: OASIS AMQP 1.0 part 2, 2.7 (transport), part 3, 3.5 (termini) and 3.4 (outcomes), part 5, 5.3.3 (SASL).
Incoming fields that are omitted or null read as their default; a mandatory one that is missing is a decode error.
"""

from typing import Any, NamedTuple

from devstack.servicebus.codec.errors import AmqpError
from devstack.servicebus.codec.fields import (
    Binary,
    Bool,
    Composite,
    Map,
    Name,
    Text,
    UByte,
    UInt,
    ULong,
    UShort,
    composite,
)


@composite(0x10, "open")
class Open(NamedTuple):
    container_id: Text
    hostname: Text | None = None
    max_frame_size: UInt = 0xFFFFFFFF
    channel_max: UShort = 0xFFFF
    idle_timeout: UInt | None = None
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Map | None = None


@composite(0x11, "begin")
class Begin(NamedTuple):
    remote_channel: UShort | None
    next_outgoing_id: UInt
    incoming_window: UInt
    outgoing_window: UInt
    handle_max: UInt = 0xFFFFFFFF
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Map | None = None


@composite(0x28, "source")
class Source(NamedTuple):
    address: Text | None = None
    durable: UInt = 0
    expiry_policy: Name = "session-end"
    timeout: UInt = 0
    dynamic: Bool = False
    dynamic_node_properties: Any = None
    distribution_mode: Any = None
    filter: Map | None = None
    default_outcome: Any = None
    outcomes: Any = None
    capabilities: Any = None


@composite(0x29, "target")
class Target(NamedTuple):
    address: Text | None = None
    durable: UInt = 0
    expiry_policy: Name = "session-end"
    timeout: UInt = 0
    dynamic: Bool = False
    dynamic_node_properties: Any = None
    capabilities: Any = None


@composite(0x12, "attach")
class Attach(NamedTuple):
    name: Text
    handle: UInt
    role: Bool
    snd_settle_mode: UByte = 2
    rcv_settle_mode: UByte = 0
    source: Source | None = None
    target: Target | None = None
    unsettled: Any = None
    incomplete_unsettled: Bool = False
    initial_delivery_count: UInt | None = None
    max_message_size: ULong | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Map | None = None


@composite(0x13, "flow")
class Flow(NamedTuple):
    next_incoming_id: UInt | None
    incoming_window: UInt
    next_outgoing_id: UInt
    outgoing_window: UInt
    handle: UInt | None = None
    delivery_count: UInt | None = None
    link_credit: UInt | None = None
    available: UInt | None = None
    drain: Bool = False
    echo: Bool = False
    properties: Map | None = None


@composite(0x14, "transfer")
class Transfer(NamedTuple):
    handle: UInt
    delivery_id: UInt | None = None
    delivery_tag: Binary | None = None
    message_format: UInt | None = None
    settled: Bool | None = None
    more: Bool = False
    rcv_settle_mode: UByte | None = None
    state: Composite = None
    resume: Bool = False
    aborted: Bool = False
    batchable: Bool = False


@composite(0x15, "disposition")
class Disposition(NamedTuple):
    role: Bool
    first: UInt
    last: UInt | None = None
    settled: Bool = False
    state: Composite = None
    batchable: Bool = False


@composite(0x1D, "error")
class ErrorField(NamedTuple):
    condition: Name
    description: Text | None = None
    info: Map | None = None


@composite(0x16, "detach")
class Detach(NamedTuple):
    handle: UInt
    closed: Bool = False
    error: ErrorField | None = None


@composite(0x17, "end")
class End(NamedTuple):
    error: ErrorField | None = None


@composite(0x18, "close")
class Close(NamedTuple):
    error: ErrorField | None = None


@composite(0x40, "sasl-mechanisms")
class SaslMechanisms(NamedTuple):
    mechanisms: Any


@composite(0x41, "sasl-init")
class SaslInit(NamedTuple):
    mechanism: Name
    initial_response: Binary | None = None
    hostname: Text | None = None


@composite(0x44, "sasl-outcome")
class SaslOutcome(NamedTuple):
    code: UByte
    additional_data: Binary | None = None


@composite(0x24, "accepted")
class Accepted(NamedTuple):
    """The outcome of a message that was taken."""


@composite(0x25, "rejected")
class Rejected(NamedTuple):
    error: ErrorField | None = None


@composite(0x26, "released")
class Released(NamedTuple):
    """The outcome of a message that was not looked at."""


@composite(0x27, "modified")
class Modified(NamedTuple):
    delivery_failed: Bool = False
    undeliverable_here: Bool = False
    message_annotations: Map | None = None


@composite(0x23, "received")
class Received(NamedTuple):
    section_number: UInt
    section_offset: ULong


def error_field(error: AmqpError) -> ErrorField:
    """An error for the wire. All three fields are always written: azure-servicebus reads the third without a look."""
    return ErrorField(error.condition, error.description, {})


Outcome = Accepted | Rejected | Released | Modified

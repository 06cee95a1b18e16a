"""The codec speaks AMQP as the standard writes it and as azure-servicebus reads and writes it."""

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import decode_performative, encode_performative
from devstack.servicebus.codec.decode import decode, skip
from devstack.servicebus.codec.encode import encode
from devstack.servicebus.codec.errors import DECODE_ERROR, FRAMING_ERROR, AmqpError
from devstack.servicebus.codec.fields import COMPOSITES
from devstack.servicebus.codec.frames import MAX_FRAME_SIZE, take_frame, transfer_frames
from devstack.servicebus.codec.message import (
    parse,
    read_application_properties,
    read_properties,
    read_value,
    split_batch,
)
from devstack.servicebus.codec.values import Array, Described, Int, Symbol, Timestamp, UByte, UInt, ULong
from devstack.servicebus.codec.written_message import with_application_properties

# Each is written out from OASIS AMQP 1.0 part 1, 1.6.
VECTORS: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("5601", True),
    ("43", 0),
    ("44", 0),
    ("50ff", 255),
    ("51ff", -1),
    ("6000ff", 255),
    ("61ffff", -1),
    ("5280", 128),
    ("70000003e8", 1000),
    ("54ff", -1),
    ("71fffffc18", -1000),
    ("53ff", 255),
    ("80ffffffffffffffff", 2**64 - 1),
    ("55ff", -1),
    ("81ffffffffffffffff", -1),
    ("723fc00000", 1.5),
    ("823ff8000000000000", 1.5),
    ("7300000041", "A"),
    ("83000000e8d4a51000", 1_000_000_000_000),
    ("9800112233445566778899aabbccddeeff", uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    ("a003010203", b"\x01\x02\x03"),
    ("b000000003010203", b"\x01\x02\x03"),
    ("a103e282ac", "€"),
    ("a30461626364", Symbol("abcd")),
    ("45", []),
    ("c0050341540840", [True, 8, None]),
    ("d000000007000000024154ff", [True, -1]),
    ("c10502540254ff", {2: -1}),
    ("e0050354010203", [1, 2, 3]),
    ("f000000008000000035401fe03", [1, -2, 3]),
    ("00532440", Described(0x24, None)),
]


@pytest.mark.parametrize(("raw", "value"), VECTORS)
def test_values_read_as_the_standard_writes_them(raw: str, value: Any) -> None:
    encoded = bytes.fromhex(raw)

    assert decode(encoded) == (value, len(encoded))
    assert skip(encoded, 0) == len(encoded)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (None, "40"),
        (True, "41"),
        (UInt(0), "43"),
        (UInt(255), "52ff"),
        (UInt(256), "7000000100"),
        (ULong(0), "44"),
        (ULong(2**32), "800000000100000000"),
        (UByte(7), "5007"),
        (-129, "81ffffffffffffff7f"),
        (5, "5505"),
        (Int(5), "5405"),
        (Timestamp(1), "830000000000000001"),
        (1.5, "823ff8000000000000"),
        ("é", "a102c3a9"),
        (Symbol("a"), "a30161"),
        (b"\0", "a00100"),
        ([], "45"),
        ({"a": 1}, "c10602a101615501"),
        (Array((Timestamp(1), Timestamp(2))), "f000000015000000028300000000000000010000000000000002"),
        (Described(ULong(0x24), []), "00532445"),
    ],
)
def test_values_are_written_in_their_shortest_form(value: Any, raw: str) -> None:
    assert encode(value).hex() == raw


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300)
    | st.uuids()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5),
    max_leaves=20,
)


@given(values)
def test_what_is_written_reads_back(value: Any) -> None:
    encoded = encode(value)

    assert decode(encoded) == (value, len(encoded))
    assert skip(encoded, 0) == len(encoded)


def refusal(read: Callable[[bytes], object], raw: bytes) -> str | None:
    """The condition that reading is refused with; None when it is not."""
    try:
        read(raw)
    except AmqpError as error:
        return error.condition
    return None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_decode_error(raw: bytes) -> None:
    condition = refusal(decode, raw)

    assert condition in (None, DECODE_ERROR)
    if condition is None:
        _, end = decode(raw)
        assert 0 < end <= len(raw)
        assert skip(raw, 0) == end


@given(values, st.data())
def test_a_value_cut_short_is_a_decode_error(value: Any, data: st.DataObject) -> None:
    encoded = encode(value)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]

    with pytest.raises(AmqpError, match=DECODE_ERROR):
        decode(cut)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_decode_error(raw: bytes) -> None:
    for read in (parse, split_batch):
        assert refusal(read, raw) in (None, DECODE_ERROR)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_performative_or_an_amqp_error(raw: bytes) -> None:
    for code in (0x10, 0x12, 0x13, 0x14, 0x15):
        condition = refusal(decode_performative, bytes((0, 0x53, code)) + raw)
        assert condition in (None, DECODE_ERROR, "amqp:invalid-field")


def test_nesting_is_bounded() -> None:
    nested = b"\x45"
    for _ in range(40):
        nested = bytes((0xD0,)) + struct.pack(">II", len(nested) + 4, 1) + nested

    with pytest.raises(AmqpError, match="nested"):
        decode(nested)
    with pytest.raises(AmqpError, match="nested"):
        decode(b"\x00" * 5000 + b"\x40")
    with pytest.raises(AmqpError, match="nested"):
        skip(b"\x00" * 5000 + b"\x40", 0)


def test_a_count_larger_than_the_bytes_allocates_nothing() -> None:
    for constructor in (0xD0, 0xD1, 0xF0):
        with pytest.raises(AmqpError, match=DECODE_ERROR):
            decode(bytes((constructor,)) + struct.pack(">II", 5, 0xFFFFFFFE) + b"\x40")


def test_a_frame_larger_than_agreed_is_refused_before_it_arrives() -> None:
    with pytest.raises(AmqpError, match=FRAMING_ERROR):
        take_frame(bytearray(struct.pack(">IBBH", MAX_FRAME_SIZE + 1, 2, 0, 0)), 0)
    with pytest.raises(AmqpError, match=FRAMING_ERROR):
        take_frame(bytearray(struct.pack(">IBBH", 7, 2, 0, 0)), 0)
    with pytest.raises(AmqpError, match=FRAMING_ERROR):
        take_frame(bytearray(struct.pack(">IBBH", 8, 1, 0, 0)), 0)


def test_an_incomplete_frame_waits_for_the_rest() -> None:
    whole = struct.pack(">IBBH", 12, 2, 0, 3) + b"body"

    for length in range(len(whole)):
        assert take_frame(bytearray(whole[:length]), 0) is None
    taken = take_frame(bytearray(whole), 0)
    assert taken is not None
    assert (taken[0].channel, taken[0].body, taken[1]) == (3, b"body", 12)


def test_a_large_delivery_is_cut_into_frames_that_fit() -> None:
    payload = bytes(range(256)) * 10

    frames = transfer_frames(1, 2, 3, b"tag", payload, settled=False, max_frame_size=512)

    assert all(len(frame) <= 512 for frame in frames)
    pieces = []
    for index, encoded in enumerate(frames):
        taken = take_frame(bytearray(encoded), 0)
        assert taken is not None
        transfer, payload_at = decode_performative(taken[0].body)
        assert (transfer.handle, transfer.delivery_id, transfer.delivery_tag) == (2, 3, b"tag")
        assert transfer.more is (index < len(frames) - 1)
        pieces.append(taken[0].body[payload_at:])
    assert b"".join(pieces) == payload


def test_a_performative_keeps_its_fields_and_defaults() -> None:
    transfer, _ = decode_performative(bytes.fromhex("005314c0020143"))  # handle 0, the rest left out

    assert transfer == p.Transfer(0)
    assert transfer.more is False
    with pytest.raises(AmqpError, match="mandatory"):
        decode_performative(bytes.fromhex("00531445"))
    with pytest.raises(AmqpError, match="wrong type"):
        decode_performative(bytes.fromhex("005314c0020141"))
    with pytest.raises(AmqpError, match=DECODE_ERROR):
        decode_performative(bytes.fromhex("005399c0020143"))


def test_a_field_that_may_not_be_null_is_mandatory_wherever_it_stands() -> None:
    begin = p.Begin(None, 0, 10, 20)
    assert decode_performative(encode_performative(begin))[0] == begin
    cut_short = e.described(0x11, e.encode_list([b"\x40", e.uint(0), b"\x40", e.uint(20)]))
    with pytest.raises(AmqpError, match=r"begin\.incoming_window is mandatory"):
        decode_performative(cut_short)


def test_every_composite_is_understood_by_its_code_and_by_its_name() -> None:
    for kind, descriptor in COMPOSITES.items():
        fields = [b"\x40"] * len(kind._fields)  # type: ignore[attr-defined]  # every composite is a NamedTuple
        for announced in (e.ulong(descriptor.code), e.symbol(descriptor.name)):
            raw = b"\x00" + announced + e.encode_list(fields)
            try:
                assert isinstance(decode_performative(raw)[0], kind)
            except AmqpError as error:
                assert "mandatory" in error.description  # noqa: PT017 - either is an understood composite


def _encoded(message: Any) -> bytes:
    outgoing = PyamqpTransport.to_outgoing_amqp_message(message)
    output = bytearray()
    encode_payload(output, outgoing)
    return bytes(output)


def test_what_the_sdk_sends_is_understood() -> None:
    message = ServiceBusMessage(
        "body",
        message_id="id",
        session_id="session",
        subject="subject",
        application_properties={"number": 1, "text": "t"},
    )

    parsed = parse(_encoded(message.raw_amqp_message))

    assert (parsed.message_id, parsed.session_id) == ("id", "session")
    assert read_properties(parsed)["subject"] == "subject"
    assert read_application_properties(parsed) == {"number": 1, "text": "t"}


def test_every_kind_of_body_is_kept_as_it_is() -> None:
    for kinds in (
        {"data_body": [b"a", b"b"]},
        {"value_body": {"k": [1, True]}},
        {"sequence_body": [1, "x", None]},
    ):
        raw = _encoded(AmqpAnnotatedMessage(**kinds, footer={"f": 1}, delivery_annotations={"d": 2}))
        assert parse(raw).raw == raw

    assert read_value(parse(_encoded(AmqpAnnotatedMessage(value_body=5)))) == 5
    assert read_value(parse(_encoded(AmqpAnnotatedMessage(data_body=b"5")))) is None


def test_application_properties_are_merged_and_the_sdk_reads_the_result() -> None:
    raw = _encoded(
        ServiceBusMessage("body", application_properties={"kept": 1, "changed": 2}).raw_amqp_message
    )

    changed = with_application_properties(parse(raw), {"changed": "now text", "new": True})

    message = decode_payload(memoryview(changed))
    assert message.application_properties == {b"kept": 1, b"changed": b"now text", b"new": True}
    assert message.data == [b"body"]
    bare = with_application_properties(parse(bytes.fromhex("005375a00178")), {"new": 1})
    assert decode_payload(memoryview(bare)).application_properties == {b"new": 1}


# A value of every type, in the shortest form that the type has for the value.
SIMPLE = """
    40 41 42 43 44 50ff 51ff 6000ff 61ffff 5280 70000003e8 54ff 71fffffc18 53ff 80ffffffffffffffff 55ff
    817fffffffffffffff 723fc00000 823ff8000000000000 7300000041 7422500001 842234000000000017
    940c400000000000000000000000000017
    83000000e8d4a51000 9800112233445566778899aabbccddeeff a003010203 a103e282ac a30461626364
    c10502540254ff c0050341540840 00532440
"""


@pytest.mark.parametrize("raw", SIMPLE.split())
def test_a_value_is_written_as_the_type_that_it_was_read_as(raw: str) -> None:
    encoded = bytes.fromhex(raw)

    assert encode(decode(encoded)[0]) == encoded


def test_message_ids_of_every_type_are_text() -> None:
    for encoded, text in (("a1026964", "id"), ("5307", "7"), ("a0020aff", "0aff"), ("a0026964", "id")):
        fields = bytes.fromhex(encoded)
        raw = b"\x00\x53\x73\xc0" + bytes((len(fields) + 1, 1)) + fields + bytes.fromhex("005375a00178")
        assert parse(raw).message_id == text

"""Writing a message replaces whole sections: every byte of the others stays as its sender wrote it."""

from collections.abc import Collection, Mapping
from typing import Any

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.message import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    PROPERTY_NAMES,
    VALUE,
    ParsedMessage,
    raw_application_properties,
    raw_fields,
)


def with_application_properties(
    message: ParsedMessage, changes: dict[str, Any], removed: Collection[str] = ()
) -> bytes:
    """The message's bytes with ``changes`` merged into its application properties, and ``removed`` ones left out."""
    merged = raw_application_properties(message)
    merged.update({name: e.encode(value) for name, value in changes.items()})
    merged = {name: value for name, value in merged.items() if name not in removed}
    items = [part for name, value in merged.items() for part in (e.string(name), value)]
    section = e.described(APPLICATION_PROPERTIES, e.encode_map(items))
    start = message.application_properties_at or message.body_start
    return message.raw[:start] + section + message.raw[message.body_start :]


def with_properties(message: ParsedMessage, changes: Mapping[str, str | None]) -> bytes:
    """The message's bytes with these properties, by their AMQP names; None removes one."""
    raw = message.raw
    start = end = message.bare_start
    fields: list[bytes] = []
    if message.properties_at:
        fields, end = raw_fields(raw, message.properties_at)
    fields += [b"\x40"] * (len(PROPERTY_NAMES) - len(fields))
    for name, value in changes.items():
        fields[PROPERTY_NAMES.index(name)] = e.encode(value)
    while fields and fields[-1] == b"\x40":
        fields.pop()
    return raw[:start] + e.described(PROPERTIES, e.encode_list(fields)) + raw[end:]


def build_value_message(
    value: Any, *, correlation_id: Any = None, application_properties: dict[str, Any] | None = None
) -> bytes:
    """A message with one value as its body, as answers of ``$cbs`` and ``$management`` are."""
    sections = []
    if correlation_id is not None:
        fields = [b"\x40"] * 5 + [e.encode(correlation_id)]
        sections.append(e.described(PROPERTIES, e.encode_list(fields)))
    if application_properties is not None:
        sections.append(e.described(APPLICATION_PROPERTIES, e.encode(application_properties)))
    sections.append(e.described(VALUE, e.encode(value)))
    return b"".join(sections)

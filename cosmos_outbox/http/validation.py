"""Validates input into a model, or raises an error that lists every wrong field by its name in JSON."""

from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, TypeVar, cast, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from cosmos_outbox.http.problems import FieldError, InvalidRequest
from cosmos_outbox.outbox.aggregate import STORED
from cosmos_outbox.outbox.canonical import canonical

Model = TypeVar("Model", bound=BaseModel)

_UNKNOWN = "is not a field that can be set here"
_READ_ONLY = (
    "cannot be set, and is not as it is now: leave it out, or read again and send it back as it comes"
)
_INEXACT = 'must be a whole number, or a text such as "12.50"'
_MADE_IN_PYTHON = """
    base64_decode byte_size byte_size_unit bytes_type color_error fraction_parsing import_error ip_any_address
    ip_any_interface ip_any_network ip_v4_address ip_v4_interface ip_v4_network ip_v6_address ip_v6_interface
    ip_v6_network not_operation_failed parent_does_not_exist path_exists path_not_directory path_not_file
    path_not_socket path_type pattern_bytes_type pattern_regex pattern_str_type pattern_type payment_card_number_brand
    payment_card_number_digits payment_card_number_luhn predicate_failed sequence_str zoneinfo_str
"""
"""Errors of pydantic's own types that its core does not list."""
_OF_PYDANTIC = frozenset([*get_args(core_schema.ErrorType), *_MADE_IN_PYTHON.split()])
_REASONS = {
    "extra_forbidden": _UNKNOWN,
    "missing": "is required",
    "none_required": "must be null",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be a finite number",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_not_ascii": "must have ASCII characters alone",
    "bytes_too_short": "must have at least {min_length} bytes",
    "bytes_too_long": "must have at most {max_length} bytes",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "date_past": "must be in the past",
    "date_future": "must be in the future",
    "datetime_past": "must be in the past",
    "datetime_future": "must be in the future",
    "timezone_naive": "must have no time zone",
    "timezone_aware": "must have a time zone",
    "uuid_version": "must be a UUID of version {expected_version}",
    "url_too_long": "must have at most {max_length} characters",
    "url_scheme": "must begin with {expected_schemes}",
    "decimal_max_digits": "must have at most {max_digits} digits",
    "decimal_max_places": "must have at most {decimal_places} digits after the point",
    "decimal_whole_digits": "must have at most {whole_digits} digits before the point",
}
"""The reasons for pydantic's rules, by pydantic's names."""
_KINDS = {
    "string": "a text", "bytes": "a text", "int": "a whole number", "float": "a number", "decimal": "a decimal number",
    "bool": "true or false", "datetime": "a date and time, such as 2026-03-01T12:00:00Z",
    "date": "a date, such as 2026-03-01", "time_delta": "a duration, such as PT1H", "time_": "a time, such as 12:00:00",
    "uuid": "a UUID", "url": "a URL", "list": "a list", "tuple": "a list", "set": "a list", "frozen_set": "a list",
    "model": "a JSON object", "dict": "a JSON object", "mapping": "a JSON object", "dataclass": "a JSON object",
    "ip_": "an IP address or network", "zoneinfo": "a time zone, such as Europe/Oslo", "base64": "base64",
    "byte_size": "a number of bytes, such as 10MB", "pattern": "a regular expression", "payment": "a card number",
    "color": "a colour", "fraction": "a fraction, such as 3/4",
}  # fmt: skip
"""The expected kind of value by a prefix of the rule's name. The first match wins."""
_CODES = {
    "extra_forbidden": "unknown",
    "missing": "required",
    "value_error": "invalid",
    "assertion_error": "invalid",
    "string_too_short": "too_short",
    "string_too_long": "too_long",
    "string_pattern_mismatch": "malformed",
    "greater_than": "too_small",
    "greater_than_equal": "too_small",
    "less_than": "too_large",
    "less_than_equal": "too_large",
    "enum": "not_one_of",
    "literal_error": "not_one_of",
}
"""Maps pydantic's error types to the codes of this package. A custom type (``PydanticCustomError``) is kept."""


def validated(model: type[Model], data: Any) -> Model:
    """Validates ``data`` as ``model``. Raises InvalidRequest, which names each wrong field but holds no input value.

    A decimal must be sent as a text or a whole number: other numbers in JSON are rounded where they are read.
    """
    try:
        made = model.model_validate(data, by_alias=True, by_name=False, extra="forbid")
    except ValidationError as problems:
        raise InvalidRequest(*field_errors(problems)) from None  # the original holds the input: personal data
    if inexact := [*_inexact(made, data, "")]:
        raise InvalidRequest(*inexact)
    return made


def _inexact(made: Any, sent: Any, name: str) -> Iterator[FieldError]:
    """Yields an error for each decimal that was made of a floating-point number."""
    if isinstance(made, Decimal) and isinstance(sent, float):
        yield FieldError(name, _INEXACT, "wrong_type")
    elif isinstance(made, BaseModel) and isinstance(sent, Mapping):
        for attribute, field in type(made).model_fields.items():
            part = field.alias or attribute
            yield from _inexact(getattr(made, attribute), sent.get(part), f"{name}.{part}" if name else part)
    elif isinstance(made, list | tuple) and isinstance(sent, list):
        for index, pair in enumerate(zip(made, sent, strict=False)):
            yield from _inexact(*pair, f"{name}.{index}")
    elif isinstance(made, dict) and isinstance(sent, Mapping):
        for part, value in made.items():
            yield from _inexact(value, sent.get(part), f"{name}.{part}")


def field_errors(problems: ValidationError, within: str = "") -> list[FieldError]:
    """Converts pydantic's errors, without input values; ``within``: the name of the field that holds the value."""
    return [
        FieldError(
            field=".".join(str(part) for part in (*([within] if within else []), *problem["loc"])) or "body",
            reason=_reason(problem["type"], problem["msg"], problem.get("ctx", {})),
            code=_code(problem["type"]),
        )
        for problem in problems.errors(include_url=False, include_input=False)
    ]


def unknown_nulls(model: type[BaseModel], patch: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yields errors for fields that a merge patch removes but ``model`` lacks: the result does not show them."""
    kinds = {field.alias or attribute: field.annotation for attribute, field in model.model_fields.items()}
    for name, value in patch.items():
        if name not in kinds and value is None:
            yield FieldError(name, _UNKNOWN, "unknown")
        elif name in kinds and isinstance(value, Mapping):
            for part in (kinds[name], *get_args(kinds[name])):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    for error in unknown_nulls(part, value):
                        yield FieldError(f"{name}.{error.field}", error.reason, error.code)


def patched(
    model: type[Model], current: BaseModel, shown: Mapping[str, Any], patch: Mapping[str, Any]
) -> Model:
    """Applies a JSON Merge Patch (RFC 7396), perhaps of all that was ``shown``, to ``current``. Raises InvalidRequest.

    Unchanged values are accepted as in :func:`replaced`.
    """
    settable, wrong = _settable(model, shown, patch, merge_patch(shown, patch))
    document = merge_patch(known(current), settable)
    return _checked(model, current, document, [*wrong, *unknown_nulls(model, settable)])


def replaced(
    model: type[Model], current: BaseModel, shown: Mapping[str, Any], sent: Mapping[str, Any]
) -> Model:
    """Replaces ``current`` by what was sent, perhaps all that was ``shown``. Raises InvalidRequest.

    Read-only properties are accepted while unchanged. A settable value equal to the stored one is accepted even if its
    rules have changed since.
    """
    return _checked(model, current, *_settable(model, shown, sent, sent))


def _settable(
    model: type[BaseModel], shown: Mapping[str, Any], sent: Mapping[str, Any], wanted: Mapping[str, Any]
) -> tuple[dict[str, Any], list[FieldError]]:
    """Returns what was sent without read-only properties, and an error for each that ``wanted`` would change."""
    names = {field.alias or attribute for attribute, field in model.model_fields.items()}
    read_only = {name for name in sent if name in shown and name not in names}
    wrong = [
        FieldError(each, _READ_ONLY, "read_only")
        for each in sorted(read_only)
        if not _same(wanted.get(each), shown[each])
    ]
    return {name: value for name, value in sent.items() if name not in read_only}, wrong


def _checked(
    model: type[Model], current: BaseModel, document: Mapping[str, Any], wrong: list[FieldError]
) -> Model:
    stored, names = known(current), {each.alias or name: name for name, each in model.model_fields.items()}
    kept = {name for name in document if name in stored and _same(document[name], stored[name])}
    try:
        details = validated(model, document)
    except InvalidRequest as invalid:
        # A field of the others may look like a part of a kept one (name.x); one without a name is reported as body.
        others = {name or "body" for name in document.keys() - kept}
        wrong += [
            error for error in invalid.errors if error.field in others or not _is_about(error.field, kept)
        ]
        if not wrong:
            details = model.model_validate(document, by_alias=True, by_name=False, context=STORED)
            new = {names[name]: document[name] for name in document.keys() & names.keys() - kept}
            return details.model_copy(update={name: _made(model, name, value) for name, value in new.items()})
    if wrong:
        raise InvalidRequest(*wrong)
    # Validation may normalise a value; an unchanged field must keep its stored spelling.
    return details.model_copy(
        update={names[name]: getattr(current, names[name]) for name in kept & names.keys()}
    )


def _made(model: type[BaseModel], attribute: str, value: Any) -> Any:
    return form_of(model.model_fields[attribute]).validate_python(value, by_alias=True, by_name=False)


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: ``1`` equals ``1.0``, but not ``true``."""
    try:
        return canonical(one) == canonical(other)
    except ValueError:  # an integer too large for a body: it was stored, not sent
        return type(one) is type(other) and bool(one == other)


def _is_about(field: str, names: Collection[str]) -> bool:
    """Whether the error's field is one of ``names`` or inside one; an unknown name may itself contain dots."""
    return field in names or field.partition(".")[0] in names


def known(model: BaseModel) -> dict[str, Any]:
    """Returns a model as JSON, without fields that only a later version of the service knows."""
    document = model.model_dump(mode="json", by_alias=True)
    return {
        (name := field.serialization_alias or field.alias or attribute): known_value(
            getattr(model, attribute), document[name]
        )
        for attribute, field in type(model).model_fields.items()
    }


def form_of(field: FieldInfo) -> TypeAdapter[Any]:
    """Returns the adapter that validates and serialises a field's values by the field's own rules."""
    kind = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return TypeAdapter(cast(Any, kind))


def known_value(value: Any, as_json: Any) -> Any:
    """As :func:`known`, for a value that may contain models."""
    if isinstance(value, BaseModel):
        return known(value)
    if isinstance(value, list | tuple):
        return [known_value(*pair) for pair in zip(value, as_json, strict=True)]
    return as_json


def _code(kind: str) -> str:
    if kind in _CODES:
        return _CODES[kind]
    of_a_type = kind.endswith(("_type", "_parsing")) or kind.startswith(("datetime_", "date_", "time_"))
    return "wrong_type" if of_a_type else kind


def _reason(kind: str, message: str, context: Mapping[str, Any]) -> str:
    """Returns this package's or the model author's text: pydantic's may contain the value."""
    if kind in {"value_error", "assertion_error"}:
        for prefix in ("Value error, ", "Assertion failed, ", "value is not a valid email address: "):
            message = message.removeprefix(prefix)
        return message or "is not valid"
    if kind not in _OF_PYDANTIC:
        return message
    if kind in _REASONS:
        try:
            return _REASONS[kind].format_map(context)
        except KeyError:  # a custom rule of this name, without the context
            return message
    return next((f"must be {what}" for name, what in _KINDS.items() if kind.startswith(name)), "is not valid")


def merge_patch(target: Any, patch: Any) -> Any:
    """Returns ``target`` with ``patch`` applied; neither argument is changed.

    An existing null stays, so that sending back what was read changes nothing.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is not None:
            merged[name] = merge_patch(merged.get(name), value)
        elif merged.get(name) is not None:
            del merged[name]
    return merged

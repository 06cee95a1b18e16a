"""Input becomes a model, or an error that names every wrong field by its name on the wire."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from cosmos_outbox.http.errors import FieldError, InvalidRequest
from cosmos_outbox.http.merge_patch import merge_patch
from cosmos_outbox.outbox.aggregate import STORED

Model = TypeVar("Model", bound=BaseModel)

_UNKNOWN = "is not a field that can be set here"
_REASONS = {
    "extra_forbidden": _UNKNOWN,
    "missing": "is required",
    "model_type": "must be a JSON object",
}


def validated(model: type[Model], data: Any) -> Model:
    """``data`` as ``model``. Raises InvalidRequest, which names each wrong field and holds no input value."""
    try:
        return model.model_validate(data, by_alias=True, by_name=False, extra="forbid")
    except ValidationError as problems:
        errors = [
            FieldError(
                field=".".join(str(part) for part in problem["loc"]) or "body",
                reason=_REASONS.get(problem["type"]) or _sentence(problem["msg"]),
            )
            for problem in problems.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise InvalidRequest(*errors) from None  # the original holds the input: personal data


def unknown_nulls(model: type[BaseModel], patch: Mapping[str, Any]) -> Iterator[FieldError]:
    """The fields that a merge patch removes and that ``model`` never had: what is patched has no trace of them."""
    kinds = {field.alias or attribute: field.annotation for attribute, field in model.model_fields.items()}
    for name, value in patch.items():
        if name not in kinds and value is None:
            yield FieldError(name, _UNKNOWN)
        elif name in kinds and isinstance(value, Mapping):
            for part in (kinds[name], *get_args(kinds[name])):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    for error in unknown_nulls(part, value):
                        yield FieldError(f"{name}.{error.field}", error.reason)


def patched(model: type[Model], current: BaseModel, patch: Mapping[str, Any]) -> Model:
    """``current`` with a JSON Merge Patch (RFC 7396) applied. Raises InvalidRequest when what is patched breaks a rule.

    A property that the patch leaves alone was stored, and stays as it is, even if its rules have changed since.
    """
    document, wrong = merge_patch(known(current), patch), [*unknown_nulls(model, patch)]
    try:
        details = validated(model, document)
    except InvalidRequest as invalid:
        wrong += [error for error in invalid.errors if _is_about(error.field, patch)]
    else:
        if not wrong:
            return details
    if wrong:
        raise InvalidRequest(*wrong)
    return model.model_validate(document, by_alias=True, by_name=False, context=STORED)


def _is_about(field: str, patch: Mapping[str, Any]) -> bool:
    """An unknown name is a field as it is, dots included; the empty name is told as ``body``."""
    return field in patch or field.partition(".")[0] in patch or (field == "body" and "" in patch)


def known(model: BaseModel) -> dict[str, Any]:
    """A model as JSON, without the fields that only a later version of the service knows."""
    document = model.model_dump(mode="json", by_alias=True)
    return {
        (name := field.serialization_alias or field.alias or attribute): _known(
            getattr(model, attribute), document[name]
        )
        for attribute, field in type(model).model_fields.items()
    }


def _known(value: Any, as_json: Any) -> Any:
    if isinstance(value, BaseModel):
        return known(value)
    if isinstance(value, list | tuple):
        return [_known(*pair) for pair in zip(value, as_json, strict=True)]
    return as_json


def _sentence(message: str) -> str:
    return message.removeprefix("Value error, ")

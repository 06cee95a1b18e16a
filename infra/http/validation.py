"""Input becomes a model, or an error that names every wrong field by its name on the wire."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from infra.http.errors import FieldError, InvalidRequest

Model = TypeVar("Model", bound=BaseModel)

_REASONS = {
    "extra_forbidden": "is not a field that can be set here",
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

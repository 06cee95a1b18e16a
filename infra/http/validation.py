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
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as problems:
        errors = [
            FieldError(
                field=".".join(str(part) for part in problem["loc"]) or "body",
                reason=_REASONS.get(problem["type"]) or _sentence(problem["msg"]),
            )
            for problem in problems.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise InvalidRequest(*errors) from None  # the original holds the input: personal data


def _sentence(message: str) -> str:
    return message.removeprefix("Value error, ")

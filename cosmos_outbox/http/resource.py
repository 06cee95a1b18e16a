"""Declares the calls on aggregates of one type, instead of writing them one by one.

The declaration has what is specific to the service: how an aggregate is created, changed, deleted and shown. The
behaviour common to all aggregates (versions, keys, pages, refusals) is in ``cosmos_outbox.http.calls``.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeGuard, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel

from cosmos_outbox.http import listing
from cosmos_outbox.http.request import ETAG, PAGE
from cosmos_outbox.http.validation import known
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import STORED, Aggregate

A = TypeVar("A", bound=Aggregate[Any])
A_contra = TypeVar("A_contra", bound=Aggregate[Any], contravariant=True)
A_co = TypeVar("A_co", bound=Aggregate[Any], covariant=True)
D = TypeVar("D", bound=BaseModel)
D_contra = TypeVar("D_contra", bound=BaseModel, contravariant=True)

SEQUENCE = "sequence"
_HIDDEN = ("deleted", "lastSequence")
_PATH = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")


class Create(Protocol[D_contra, A_co]):
    """Creates an aggregate from a caller's details. ``id``: its new id; ``at``: now (UTC)."""

    def __call__(self, details: D_contra, /, *, id: UUID, at: datetime) -> A_co:  # noqa: A002 - the name that users know
        """Returns the aggregate; the caller stores it."""
        ...


class Change(Protocol[A_contra, D_contra]):
    """Changes an aggregate to the given details; each difference raises its event."""

    def __call__(self, aggregate: A_contra, details: D_contra, /, *, at: datetime) -> None:
        """Changes the aggregate. May be called several times, each time on the current aggregate."""
        ...


class Run(Protocol[A_contra]):
    """Changes an aggregate."""

    def __call__(self, aggregate: A_contra, /, *, at: datetime) -> None:
        """Changes the aggregate. May be called several times, each time on the current aggregate."""
        ...


@dataclass(frozen=True)
class Action:
    """A named change: ``POST /orders/{id}/ship``."""

    name: str
    """The last part of the path."""
    run: Callable[..., None]
    """A method of the aggregate: ``run(aggregate, at=...)``, and with a body ``run(aggregate, body, at=...)``."""
    body: type[BaseModel] | None = None
    """The model of the request body; None: it has none."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise TypeError(f"{self.name!r} cannot name an action: write it as in a path, such as add-line")
        _takes(self.run, f"run of the action {self.name}", 1 if self.body is None else 2, "at")


@dataclass(frozen=True)
class Resource(Generic[A, D]):
    """The calls on aggregates of one type, below a path. A call that is not declared is answered 405.

    ``GET path`` and ``GET path/{id}`` are always there; ``create`` gives ``POST path``, ``change`` gives ``PATCH
    path/{id}`` and ``PUT path/{id}``, ``delete`` gives ``DELETE path/{id}``, and each of ``actions`` ``POST
    path/{id}/name``. An aggregate's id is its partition key too.
    """

    path: str
    """The path below the API's root, without a leading slash: ``orders``."""
    kind: type[A]
    new: type[D] | None = None
    """The properties that a caller sets: the body of POST and PUT, and the target of PATCH, a JSON Merge Patch (RFC
    7396). A PUT may send back a whole representation that was read."""
    create: Create[D, A] | None = None
    change: Change[A, D] | None = None
    delete: Run[A] | None = None
    actions: Sequence[Action] = ()
    details: Callable[[A], D] | None = None
    """Returns the current values of ``new``; None: they are the properties of the state with the same names."""
    view: type[BaseModel] | Callable[[A], Mapping[str, Any]] | None = None
    """The representation for callers: a model with properties of the state, which also describes the responses, or a
    function. The model gets the ``sequence`` added. None: all of the state, with its ``sequence``."""
    errors: Mapping[type[Exception], int] = field(default_factory=dict)
    """Maps the aggregate's errors to statuses; an error's text is sent to the caller. The most derived class wins. An
    error that is not listed is answered 500, as a bug."""

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path):
            raise TypeError(
                f"{self.path!r} cannot be a path: write it without a slash before it, such as orders"
            )
        if self.kind.partition_key is not Aggregate.partition_key:
            raise TypeError(
                f"{self.path}: a {self.kind.aggregate_type} is found by id and partition key: write its calls by hand"
            )
        if self.create is not None:
            _takes(self.create, f"create of {self.path}", 1, "id", "at")
        if self.change is not None:
            _takes(self.change, f"change of {self.path}", 2, "at")
        if self.delete is not None:
            _takes(self.delete, f"delete of {self.path}", 1, "at")
        self._check_what_is_sent()
        self._check_the_list()
        names = [each.name for each in self.actions]
        if len(set(names)) < len(names):
            raise TypeError(f"{self.path}: two actions have one name: {', '.join(names)}")
        if self.change and self.details is None and self.new is not None:
            self._must_be_of_the_state(self.new, "declare details")
        if _is_model(self.view):
            self._must_be_of_the_state(self.view, "make view a function")

    def _check_what_is_sent(self) -> None:
        if self.new is None:
            if self.create or self.change:
                raise TypeError(f"{self.path}: the body of a creation needs a model: declare new")
        elif ETAG in (each.alias or name for name, each in self.new.model_fields.items()):
            raise TypeError(
                f"{self.path}: {ETAG} is the name of the version in bodies: give the field another name"
            )

    def _check_the_list(self) -> None:
        asked = {*PAGE, listing.SORT, listing.IDS, listing.CHANGED_SINCE}
        if taken := sorted(asked & {*listing.found_by(self.kind)}):
            raise TypeError(
                f"{self.path}: {', '.join(taken)} has another meaning in a list's query: leave it out of found_by, "
                "or give the field another name"
            )

    def _must_be_of_the_state(self, model: type[BaseModel], otherwise: str) -> None:
        if missing := sorted(model.model_fields.keys() - self.kind.state_type.model_fields.keys()):
            raise TypeError(
                f"{self.path}: {model.__name__} has {', '.join(missing)}, and the state has not: {otherwise}"
            )

    def shown(self, aggregate: A) -> Mapping[str, Any]:
        """Returns the aggregate as callers see it."""
        if not _is_model(self.view):
            return cast(Callable[[A], Mapping[str, Any]], self.view or _state)(aggregate)
        values = {name: getattr(aggregate.state, name) for name in self.view.model_fields}
        return {**known(self.view.model_construct(**values)), SEQUENCE: aggregate.state.last_sequence}

    @property
    def described(self) -> Mapping[str, Any] | None:
        """The JSON schema of the aggregate as callers see it; None: ``view`` is a function, so it is not known."""
        model = self.kind.state_type if self.view is None else self.view
        if not _is_model(model):
            return None
        schema = model.model_json_schema(mode="serialization")
        properties = {name: each for name, each in schema["properties"].items() if name not in _HIDDEN}
        properties[SEQUENCE] = {"type": "integer"}
        required = list(properties)  # not the version: it is unknown once another writer has replaced it
        return {**schema, "properties": properties | {ETAG: {"type": "string"}}, "required": required}

    def current(self, aggregate: A) -> D:
        """Returns the current values of the properties that a caller sets."""
        if self.details is not None:
            return self.details(aggregate)
        assert self.new is not None, "checked when it was declared"
        state = {name: getattr(aggregate.state, name) for name in self.new.model_fields}
        return self.new.model_validate(state, by_name=True, by_alias=False, extra="ignore", context=STORED)


def _is_model(view: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(view, type) and issubclass(view, BaseModel)


def _state(aggregate: Aggregate[Any]) -> Mapping[str, Any]:
    """The state without internal properties; ``deleted`` is one, since no caller sees a deleted aggregate."""
    shown = {name: value for name, value in known(aggregate.state).items() if name not in _HIDDEN}
    return {**shown, SEQUENCE: aggregate.state.last_sequence}


def _takes(function: Callable[..., Any], what: str, positional: int, *keywords: str) -> None:
    """Raises TypeError, already at the declaration, unless the function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*[None] * positional, **dict.fromkeys(keywords))
    except TypeError as error:
        arguments = ", ".join([*["aggregate", "body"][:positional], *(f"{name}=..." for name in keywords)])
        raise TypeError(f"{what} is called with ({arguments}): {error}") from None

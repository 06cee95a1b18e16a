"""A resource: the calls on aggregates of one type are declared, and not written one by one.

The declaration says what is the service's own: how an aggregate is made, changed and deleted, and what callers see.
What a call does for any aggregate (versions, keys, pages, refusals) stands in ``cosmos_outbox.http.calls``, once.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeGuard, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel

from cosmos_outbox.http import listing
from cosmos_outbox.http.conditions import ETAG
from cosmos_outbox.http.request import PAGE
from cosmos_outbox.http.validation import known
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
    """Makes an aggregate from what a caller sent. ``id``: of the new one; ``at``: now (UTC)."""

    def __call__(self, details: D_contra, /, *, id: UUID, at: datetime) -> A_co:  # noqa: A002 - what it is
        """The aggregate, not stored yet."""
        ...


class Change(Protocol[A_contra, D_contra]):
    """Gives an aggregate the details that it shall have; what differs from those it has raises its events."""

    def __call__(self, aggregate: A_contra, details: D_contra, /, *, at: datetime) -> None:
        """May be called several times, each time with the aggregate as it is then."""
        ...


class Run(Protocol[A_contra]):
    """Changes an aggregate."""

    def __call__(self, aggregate: A_contra, /, *, at: datetime) -> None:
        """May be called several times, each time with the aggregate as it is then."""
        ...


@dataclass(frozen=True)
class Action:
    """A change with a name of its own: ``POST /orders/{id}/ship``."""

    name: str
    """The last part of the path."""
    run: Callable[..., None]
    """A method of the aggregate: ``run(aggregate, at=...)``, and with a body ``run(aggregate, body, at=...)``."""
    body: type[BaseModel] | None = None
    """What the caller sends; None: nothing."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", self.name):
            raise TypeError(f"{self.name!r} cannot name an action: write it as in a path, such as add-line")
        _takes(self.run, f"run of the action {self.name}", 1 if self.body is None else 2, "at")


@dataclass(frozen=True)
class Resource(Generic[A, D]):
    """The calls on aggregates of one type, below a path. A call that is not declared is not there: it answers 405.

    ``GET path`` and ``GET path/{id}`` are always there; ``create`` gives ``POST path``, ``change`` gives ``PATCH
    path/{id}`` and ``PUT path/{id}``, ``delete`` gives ``DELETE path/{id}``, and each of ``actions`` ``POST
    path/{id}/name``. An aggregate's id is its partition key too.
    """

    path: str
    """Below the API's root, without a slash before it: ``orders``."""
    kind: type[A]
    new: type[D] | None = None
    """What a caller decides of an aggregate: the body of POST and PUT, and what PATCH is a JSON Merge Patch of (RFC
    7396). To PUT what was read may be sent back whole."""
    create: Create[D, A] | None = None
    change: Change[A, D] | None = None
    delete: Run[A] | None = None
    actions: Sequence[Action] = ()
    details: Callable[[A], D] | None = None
    """What a caller decides, as it is now; None: the properties of the state with the names of those in ``new``."""
    view: type[BaseModel] | Callable[[A], Mapping[str, Any]] | None = None
    """The aggregate as callers see it: a model of properties of the state, which describes the answers too, or a
    function. The model gets the ``sequence`` beside it. None: all of the state, with its ``sequence``."""
    errors: Mapping[type[Exception], int] = field(default_factory=dict)
    """The status that each error of the aggregate is answered with; its text goes to the caller. Of an error and its
    base the error counts. One that is not named here is answered 500, as a bug."""

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
                raise TypeError(f"{self.path}: what a caller sends needs a model: declare new")
        elif ETAG in (each.alias or name for name, each in self.new.model_fields.items()):
            raise TypeError(
                f"{self.path}: {ETAG} is what bodies call the version: give the field another name"
            )

    def _check_the_list(self) -> None:
        asked = {*PAGE, listing.SORT, listing.IDS, listing.CHANGED_SINCE}
        if taken := sorted(asked & {*listing.found_by(self.kind)}):
            raise TypeError(
                f"{self.path}: a list is asked for {', '.join(taken)} in another sense: leave it out of found_by, "
                "or give the field another name"
            )

    def _must_be_of_the_state(self, model: type[BaseModel], otherwise: str) -> None:
        if missing := sorted(model.model_fields.keys() - self.kind.state_type.model_fields.keys()):
            raise TypeError(
                f"{self.path}: {model.__name__} has {', '.join(missing)}, and the state has not: {otherwise}"
            )

    def shown(self, aggregate: A) -> Mapping[str, Any]:
        """The aggregate as callers see it."""
        if not _is_model(self.view):
            return cast(Callable[[A], Mapping[str, Any]], self.view or _state)(aggregate)
        values = {name: getattr(aggregate.state, name) for name in self.view.model_fields}
        return {**known(self.view.model_construct(**values)), SEQUENCE: aggregate.state.last_sequence}

    @property
    def described(self) -> Mapping[str, Any] | None:
        """The JSON schema of the aggregate as callers see it; None: only the function ``view`` knows."""
        model = self.kind.state_type if self.view is None else self.view
        if not _is_model(model):
            return None
        schema = model.model_json_schema(mode="serialization")
        properties = {name: each for name, each in schema["properties"].items() if name not in _HIDDEN}
        properties[SEQUENCE] = {"type": "integer"}
        required = list(properties)  # not the version: none is known once others have replaced it
        return {**schema, "properties": properties | {ETAG: {"type": "string"}}, "required": required}

    def current(self, aggregate: A) -> D:
        """What a caller decides, as it is now."""
        if self.details is not None:
            return self.details(aggregate)
        assert self.new is not None, "checked when it was declared"
        state = {name: getattr(aggregate.state, name) for name in self.new.model_fields}
        return self.new.model_validate(state, by_name=True, by_alias=False, extra="ignore", context=STORED)


def _is_model(view: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(view, type) and issubclass(view, BaseModel)


def _state(aggregate: Aggregate[Any]) -> Mapping[str, Any]:
    """The state without what only the service needs; nobody sees one that is deleted."""
    shown = {name: value for name, value in known(aggregate.state).items() if name not in _HIDDEN}
    return {**shown, SEQUENCE: aggregate.state.last_sequence}


def _takes(function: Callable[..., Any], what: str, positional: int, *keywords: str) -> None:
    """Raises TypeError, at the declaration and not at the first call, unless the function can be called so."""
    try:
        inspect.signature(function).bind(*[None] * positional, **dict.fromkeys(keywords))
    except TypeError as error:
        arguments = ", ".join([*["aggregate", "body"][:positional], *(f"{name}=..." for name in keywords)])
        raise TypeError(f"{what} is called with ({arguments}): {error}") from None

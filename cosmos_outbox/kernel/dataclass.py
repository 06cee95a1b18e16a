"""Defines data classes as :mod:`dataclasses` does, but makes the methods of a class with its first object.

They are compiled, and a new process has objects of a few classes alone: ``dataclasses`` spends a millisecond of
processor time on a class, and compiles each method by itself.
"""

import dataclasses
from collections.abc import Callable
from reprlib import recursive_repr
from threading import RLock
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

_COMPILED = {"__eq__", "__hash__", "__init__"}

_lock = RLock()
"""Held while methods are made: the class of a base may be made in between."""


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(
    *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(dataclasses.field, dataclasses.Field))
def dataclass(
    cls: type[T] | None = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Any:
    """Returns the class; its fields can be asked for at any time."""

    def declare(declared: type[T]) -> type[T]:
        _Late(declared, frozen=frozen, eq=eq, kw_only=kw_only)
        return declared

    return declare if cls is None else declare(cls)


class _Late:
    """Stands for the fields of a class until its methods are made, and for its ``__init__``."""

    def __init__(self, of: Any, *, frozen: bool, eq: bool, kw_only: bool) -> None:
        self._of, self._frozen, self._eq, self._kw_only = of, frozen, eq, kw_only

        def make_first(instance: Any, /, *given: Any, **named: Any) -> None:
            self.make()
            of.__init__(instance, *given, **named)

        self._make_first = of.__init__ = make_first
        of.__dataclass_fields__ = self

    def __get__(self, instance: object, owner: type) -> Any:
        self.make()
        return self._of.__dataclass_fields__

    def make(self) -> None:
        """Makes the methods. ``__init__`` is set as the last: until then other threads wait here."""
        of = self._of
        with _lock:
            if of.__dict__["__init__"] is not self._make_first:
                return
            # This finds the fields, and compiles nothing.
            dataclasses.dataclass(of, init=False, repr=False, eq=False, kw_only=self._kw_only)
            for name, method in _methods(of, frozen=self._frozen, eq=self._eq).items():
                if name == "__init__" or name not in of.__dict__:
                    setattr(of, name, method)


@recursive_repr()
def _show(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *value: object) -> None:
    if "__dataclass_fields__" in vars(type(self)) or name in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    (object.__setattr__ if value else object.__delattr__)(self, name, *value)  # a plain subclass's own


def _methods(of: Any, *, frozen: bool, eq: bool) -> dict[str, Any]:
    """Returns the methods, ``__init__`` as the last. Those that have to be quick are compiled, all at once."""
    made: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    fields, by_place, by_name, body = dataclasses.fields(of), ["self"], list[str](), list[str]()
    for each in fields:
        name, value, default = each.name, each.name, ""
        if each.default_factory is not dataclasses.MISSING:
            made[f"_make_{name}"], default = each.default_factory, "=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}" if each.init else f"_make_{name}()"
        elif each.default is not dataclasses.MISSING:
            made[f"_default_{name}"], default = each.default, f"=_default_{name}"
        if each.init:
            (by_name if each.kw_only else by_place).append(name + default)
        if each.init or value != name:
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    body.append("self.__post_init__()" if hasattr(of, "__post_init__") else "pass")
    taken = ", ".join([*by_place, "*", *by_name] if by_name else by_place)
    mine = "".join(f"self.{each.name}," for each in fields if each.compare)
    equal = f"({mine}) == ({mine.replace('self.', 'other.')}) if other.__class__ is self.__class__ else NotImplemented"
    hashed = "".join(f"self.{each.name}," for each in fields if each.compare and each.hash is None)
    source = (
        f"def __eq__(self, other):\n return {equal}",
        f"def __hash__(self):\n return hash(({hashed}))" if frozen else "__hash__ = None",
        "\n ".join([f"def __init__({taken}):", *body]),
    )
    exec("\n".join(source if eq else source[-1:]), made)  # noqa: S102 - of the class's own names
    made["__init__"].__qualname__ = f"{of.__qualname__}.__init__"
    whole = {"__setattr__": _refuse, "__delattr__": _refuse} if frozen else {}
    return {"__repr__": _show, **whole, **{name: made[name] for name in made if name in _COMPILED}}

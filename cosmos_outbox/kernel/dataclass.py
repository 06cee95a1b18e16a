"""Defines data classes as :mod:`dataclasses` does, but makes the methods of a class with its first object.

They are compiled, which takes a millisecond of processor time a class, and a new process has objects of a few classes
alone.
"""

import dataclasses
from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

_lock = RLock()
"""Held while methods are made: the class of a base may be made in between."""


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(
    *, frozen: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(dataclasses.field, dataclasses.Field))
def dataclass(cls: type[T] | None = None, /, **options: bool) -> Any:
    """Returns the class; its fields can be asked for at any time."""

    def declare(declared: type[T]) -> type[T]:
        _Late(declared, options)
        return declared

    return declare if cls is None else declare(cls)


class _Late:
    """Stands for the fields of a class until its methods are made, and for its ``__init__``."""

    def __init__(self, of: Any, options: dict[str, bool]) -> None:
        self._of, self._options = of, options

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
            dataclasses.dataclass(of, init=False, **self._options)
            frozen = self._options.get("frozen", False)
            derived = type(of.__name__, (of,), {"__doc__": "Has the same fields, so the same ``__init__``."})
            made: Any = dataclasses.dataclass(derived, repr=False, eq=False, frozen=frozen)
            made.__init__.__qualname__ = f"{of.__qualname__}.__init__"
            of.__init__ = made.__init__

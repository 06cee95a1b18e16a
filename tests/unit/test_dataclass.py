"""A data class of the library is as one of the standard library's, but gets its methods with its first object."""

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from threading import Barrier, Thread
from typing import Any, Generic, TypeVar

import pytest

from cosmos_outbox.kernel.dataclass import dataclass
from tests.support.paths import ROOT

T = TypeVar("T")


def declared() -> tuple[Any, Any]:
    """Returns a class, and one derived from it, of which there is no object yet."""

    @dataclass(frozen=True)
    class Base(Generic[T]):
        name: str
        values: list[int] = field(default_factory=list)
        hidden: str = field(default="h", repr=False, compare=False)

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("no name")

    @dataclass(frozen=True)
    class Derived(Base[int]):
        more: int = 3

    return Base, Derived


def test_the_methods_of_a_class_are_made_with_its_first_object() -> None:
    base, derived = declared()
    assert "__eq__" not in vars(base)
    assert base("a") == base("a")
    assert "__eq__" in vars(base)
    assert "__eq__" not in vars(derived)


def test_an_object_is_as_one_of_the_standard_librarys_class() -> None:
    base, _ = declared()
    one = base("a", [1], hidden="x")
    assert repr(one).endswith("Base(name='a', values=[1])")
    assert one == base("a", [1], "y")
    assert one != base("a", [2])
    assert one != derived_of(base)("a", [1])
    assert base("a").values is not base("a").values
    with pytest.raises(FrozenInstanceError):
        one.name = "b"
    with pytest.raises(ValueError, match="no name"):
        base("")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        base()
    match one:
        case base(name, values):
            assert (name, values) == ("a", [1])


def derived_of(base: Any) -> Any:
    @dataclass(frozen=True)
    class Derived(base):  # type: ignore[misc]  # a base that is a variable
        pass

    return Derived


def test_a_derived_class_has_the_fields_of_its_base_first() -> None:
    _, derived = declared()
    assert asdict(derived("a", more=4)) == {"name": "a", "values": [], "hidden": "h", "more": 4}
    assert replace(derived("a"), name="b") == derived("b")
    assert hash(derived("a", (1,))) == hash(derived("a", (1,)))


@pytest.mark.parametrize(
    "ask",
    [fields, is_dataclass, lambda each: each.__dataclass_params__ if fields(each) else None],
    ids=["fields", "is_dataclass", "params"],
)
def test_a_class_without_objects_can_be_asked_for_its_fields(ask: Callable[[Any], Any]) -> None:
    _, derived = declared()
    assert ask(derived)
    assert [each.name for each in fields(derived)] == ["name", "values", "hidden", "more"]
    assert derived("a", [1], "h", 4).more == 4


def test_a_plain_subclass_and_a_class_that_can_change_work_too() -> None:
    @dataclass
    class Open:
        count: int = 0

    class Plain(Open):
        pass

    plain = Plain(2)
    plain.count += 1
    assert plain == Plain(3)
    assert isinstance(plain, Open)
    assert not isinstance(Open.__dict__.get("__hash__"), Callable)  # type: ignore[arg-type]  # as dataclasses does

    @dataclass(frozen=True, kw_only=True)
    class Named:
        one: int = 1
        two: int
        instance: int = 3

    assert Named(two=2, instance=3) == Named(one=1, two=2)
    with pytest.raises(TypeError):
        Named(1, 2)  # type: ignore[call-arg]  # what is tested


def test_threads_that_make_the_first_objects_at_once_get_whole_ones() -> None:
    for _ in range(20):
        _, derived = declared()
        barrier, made = Barrier(4), list[Any]()

        def make(barrier: Barrier = barrier, made: list[Any] = made, derived: Any = derived) -> None:
            barrier.wait()
            made.append(derived("a", more=len("four")))

        threads = [Thread(target=make) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert made == [derived("a", more=4)] * 4


def test_the_library_declares_its_data_classes_so_alone() -> None:
    wrong = re.compile(r"^from dataclasses import .*\bdataclass\b|^import dataclasses", re.MULTILINE)
    files = [each for each in (ROOT / "cosmos_outbox").rglob("*.py") if each.name != "dataclass.py"]
    assert [str(each) for each in files if wrong.search(each.read_text())] == []

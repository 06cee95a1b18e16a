"""The search finds a shortest way to what must not be, and nothing where there is no such way."""

from collections.abc import Iterator

from tests.models.search import Searched, search


def counted(state: int) -> Iterator[tuple[str, int]]:
    if state < 20:
        yield "one more", state + 1
        yield "twice as much", state * 2


def test_the_trace_is_a_shortest_one() -> None:
    found = search(1, counted, lambda state: "nine" if state == 9 else None)
    assert found.trace == ("one more", "twice as much", "twice as much", "one more", "nine")


def test_what_cannot_be_reached_is_not_found() -> None:
    assert search(1, counted, lambda state: "far" if state > 100 else None) == Searched(states=29, trace=None)

"""What the broker's SDK brings into memory stays there, and no later collection looks at it again."""

import gc
from collections.abc import Iterator
from typing import Any, cast

import pytest

from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.wiring.late_publisher import LatePublisher


class Loaded:
    """As a module: it lives as long as the process."""

    guarantees = "its promises"


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()  # as all that is imported was before


def test_it_is_made_when_it_is_first_needed_and_once() -> None:
    made = []

    def make() -> Publisher:
        made.append(Loaded())
        return cast(Publisher, made[-1])

    publisher = LatePublisher(make)
    assert made == []
    for _ in range(2):
        assert cast(Any, publisher.guarantees) == "its promises"
    assert len(made) == 1


def test_what_is_loaded_is_out_of_the_sight_of_later_collections() -> None:
    loaded: list[Any] = []

    def make() -> Publisher:
        loaded.append(Loaded())
        return cast(Publisher, loaded[-1])

    assert cast(Any, LatePublisher(make).guarantees) == "its promises"
    assert not any(each is loaded[0] for each in gc.get_objects()), "it is in no generation any more"

"""While a process loads what it runs no garbage is collected, and no later collection looks at what it has loaded."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from cosmos_outbox.kernel.lazy_imports import loading


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generation of each collection that has run."""
    seen, threshold, enabled = list[int](), gc.get_threshold(), gc.isenabled()

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.set_threshold(100, 10, 10)
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()


def test_no_garbage_is_collected_while_a_process_loads(collections: list[int]) -> None:
    gc.enable()
    frozen = gc.get_freeze_count()
    kept: list[list[int]] = []
    with loading():
        collections.clear()
        kept += [[each] for each in range(2_000)]
        assert not collections
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(kept)


@pytest.mark.usefixtures("collections")
def test_garbage_is_collected_again_after_a_failure() -> None:
    gc.enable()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_a_process_that_collects_no_garbage_is_left_alone(collections: list[int]) -> None:
    gc.disable()
    frozen = gc.get_freeze_count()
    with loading():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() == frozen

"""What waits for minutes ends in milliseconds: time passes when nobody has anything left to do."""

import random
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from cosmos_outbox.kernel.clock import Sources, using
from outbox_simulation.engine.fault_injection import EPOCH
from outbox_simulation.engine.loop import Loop

T = TypeVar("T")


def in_virtual_time(story: Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run it; all clocks show the loop's time, which begins with 0. ``seed``: of what is drawn by lot."""
    loop = Loop(None)
    chance = random.Random(seed)
    with using(Sources(lambda: EPOCH + timedelta(seconds=loop.time()), loop.time, uuid4, chance)):
        loop.root_is_now()
        result = loop.run(story)
    assert loop.complaints == []
    return result

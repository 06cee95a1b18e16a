"""An outage makes each timer write one line, without a traceback; a bug is raised to the host."""

import asyncio
from typing import Any, cast

import azure.functions as func
import pytest

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.kernel.loops import CallEnded
from cosmos_outbox.outbox.errors import Throttled, Unavailable
from infra.bootstrap import service
from tests.support.functions import functions

TIMERS = sorted(
    name
    for name, each in functions().items()
    if (declared := each.get_trigger()) is not None and declared.get_dict_repr()["type"] == "timerTrigger"
)


class Failing:
    """Stands in for a wired service of which every call fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getattr__(self, _name: str) -> "Failing":
        return self

    def __getitem__(self, _key: object) -> "Failing":
        return self

    async def __call__(self, *_: object, **__: object) -> None:
        raise self.error


def test_there_are_timers() -> None:
    assert {"watch_relay", "tend_parked"} < {*TIMERS}


@pytest.mark.parametrize(
    "error", [StoreUnavailable("away"), Unavailable("away"), Throttled("away", retry_after_seconds=1.0)]
)
@pytest.mark.parametrize("name", TIMERS)
async def test_an_outage_is_one_line_of_a_timer(
    name: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with service.taken_from(cast(Any, Failing(error))):
        await functions()[name].get_user_function()(cast(func.TimerRequest, None))
    [line] = caplog.records
    assert line.getMessage().endswith(": away")
    assert line.exc_info is None


@pytest.mark.parametrize("name", TIMERS)
async def test_a_bug_in_a_timer_is_raised(name: str) -> None:
    with service.taken_from(cast(Any, Failing(TypeError("a bug")))), pytest.raises(TypeError, match="a bug"):
        await functions()[name].get_user_function()(cast(func.TimerRequest, None))


@pytest.mark.parametrize("name", TIMERS)
async def test_what_is_no_exception_is_raised_as_a_bug(name: str) -> None:
    """The host's worker answers no invocation that ends with a CancelledError, and ends itself at a SystemExit."""
    with service.taken_from(cast(Any, Failing(asyncio.CancelledError()))), pytest.raises(CallEnded):
        await functions()[name].get_user_function()(cast(func.TimerRequest, None))

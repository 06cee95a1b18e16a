"""A target gets no more requests than it takes, and none before the pause is over that it asked for."""

import asyncio

import pytest

from cosmos_outbox.webhook.pace import Pace, growing
from tests.support.virtual_time import in_virtual_time


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [(0, 0.5), (1, 0.5), (2, 1.0), (3, 2.0), (8, 64.0), (10, 256.0), (11, 300.0), (100_000, 300.0)],
)
def test_each_pause_is_twice_the_one_before_up_to_five_minutes_and_no_two_are_alike(
    failures: int, seconds: float
) -> None:
    drawn = [growing(failures) / seconds for _ in range(300)]
    assert 0.75 <= min(drawn) < 0.85
    assert 1.15 < max(drawn) <= 1.25


def test_who_asks_sooner_has_a_shorter_longest_pause() -> None:
    assert 3.75 <= growing(100, 5.0) <= 6.25


async def _left(pace: Pace, count: int, until: float = 1e9) -> list[float]:
    """When each of so many requests that came at once leaves."""

    async def one() -> float:
        assert await pace.turn(until)
        return round(asyncio.get_running_loop().time(), 3)

    return await asyncio.gather(*(one() for _ in range(count)))


async def _told(pace: Pace, until: float) -> tuple[bool, float]:
    """What a request is told, and when."""
    told = await pace.turn(until)
    return told, asyncio.get_running_loop().time()


def test_requests_leave_at_the_targets_rate_and_a_rest_saves_up_nothing() -> None:
    async def story() -> None:
        pace = Pace(10)
        assert await _left(pace, 4) == [0.0, 0.1, 0.2, 0.3]
        await asyncio.sleep(9.7)
        assert await _left(pace, 3) == [10.0, 10.1, 10.2]

    in_virtual_time(story())


def test_without_a_rate_all_leave_at_once() -> None:
    async def story() -> None:
        assert await _left(Pace(0), 3) == [0.0] * 3

    in_virtual_time(story())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [0, 10])
def test_nothing_leaves_in_a_pause_that_was_asked_for_and_all_do_within_a_second_of_it(
    rate: int, seed: int
) -> None:
    async def story() -> None:
        pace = Pace(rate)
        await asyncio.sleep(100.0)
        pace.busy(60.0)
        pace.busy(1.0)  # another request's answer, which came later
        first, *others = await _left(pace, 3)
        assert 160.0 <= first <= 161.0
        after = [0.1, 0.2] if rate else [0.0, 0.0]
        assert others == pytest.approx([first + each for each in after], abs=0.01)

    in_virtual_time(story(), seed=seed)


@pytest.mark.parametrize("rate", [0, 10])
def test_a_pause_is_kept_by_those_who_wait_already(rate: int) -> None:
    """For the end of another pause, or for their turns."""

    async def story() -> None:
        pace, loop = Pace(rate), asyncio.get_running_loop()
        if rate:
            leaving = asyncio.ensure_future(_left(pace, 4))
            await asyncio.sleep(0.15)
            pace.busy(60.0)
            first, second, *others = await leaving
            assert [first, second] == [0.0, 0.1]
            assert all(60.15 <= each <= 61.4 for each in others)
            assert others[1] - others[0] == pytest.approx(0.1)
        began = loop.time()
        pace.busy(60.0)
        leaving = asyncio.ensure_future(_left(pace, 2))
        await asyncio.sleep(30.0)
        pace.busy(120.0)
        assert all(150.0 <= each - began <= 151.2 for each in await leaving)

    in_virtual_time(story())


def test_two_senders_do_not_come_back_at_the_same_moment() -> None:
    back = set[float]()

    async def story() -> None:
        pace = Pace(0)
        pace.busy(1.0)
        back.update(await _left(pace, 1))

    for seed in range(5):
        in_virtual_time(story(), seed=seed)
    assert len(back) == 5


def test_a_target_that_does_not_say_how_long_is_left_alone_ever_longer_until_it_takes_one() -> None:
    async def story() -> None:
        pace, loop = Pace(0), asyncio.get_running_loop()

        async def pause() -> float:
            began = loop.time()
            pace.busy(None)
            await _left(pace, 1)
            return loop.time() - began

        pauses = [await pause() for _ in range(4)]
        pace.accepted()
        pauses.append(await pause())
        for seconds, usual in zip(pauses, [0.5, 1.0, 2.0, 4.0, 0.5], strict=True):
            assert 0.75 * usual <= seconds <= 1.25 * usual

    in_virtual_time(story())


def test_a_turn_that_comes_too_late_is_told_at_once_and_is_another_requests() -> None:
    async def story() -> None:
        pace, loop = Pace(1), asyncio.get_running_loop()
        assert await _left(pace, 1) == [0.0]
        assert not await pace.turn(0.5)
        assert [*await asyncio.gather(_told(pace, 1.5), _told(pace, 1.5))] == [(True, 1.0), (False, 0.0)]
        assert loop.time() == 1.0
        await asyncio.sleep(9.0)
        assert not await pace.turn(9.5), "that was over before it came"
        pace.busy(60.0)
        assert not await pace.turn(30.0)
        assert loop.time() == 10.0

    in_virtual_time(story())

"""A publisher's API in memory; its answers are read by the same code as those over HTTP."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.sources.http import HttpApi, HttpSource

S = TypeVar("S")


class Answers(dict[str, Mapping[str, Any]]):
    """The API's answers by aggregate id."""

    hidden = False
    """Whether a proxy answers in its place: 404 with a page of its own."""


@dataclass
class _Source(HttpSource[S]):
    answers: Answers = field(default_factory=Answers)

    async def _get(self, key: AggregateKey, headers: Mapping[str, str]) -> tuple[int, str, Any]:
        answer = self.answers.get(key.id)
        if self.answers.hidden:
            return 404, "", None
        return (410, "", None) if answer is None else (200, "", dict(answer))


@dataclass(frozen=True)
class _Api(HttpApi):
    answers: Answers = field(default_factory=Answers)

    def made(
        self, environment: Mapping[str, str], state_of: Callable[[Mapping[str, Any]], S]
    ) -> HttpSource[S]:
        return _Source(self, state_of, "memory", {}, answers=self.answers)


def api_in_memory(source: HttpApi, answers: Answers) -> HttpApi:
    """The same declaration over these answers."""
    return _Api(source.address, source.sequence, source.answers_newest, answers=answers)

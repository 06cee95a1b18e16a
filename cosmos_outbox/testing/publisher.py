"""A publisher's API in memory; its answers are read by the same code as those over HTTP."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.sources.http import HttpApi, HttpSource

S = TypeVar("S")
Answers = Mapping[str, Mapping[str, Any]]
"""The API's answers by aggregate id."""

_FOUND, _GONE = 200, 410


@dataclass
class _Source(HttpSource[S]):
    answers: Answers = field(default_factory=dict)

    async def _ask(self, key: AggregateKey, headers: Mapping[str, str]) -> tuple[int, Found[S] | None]:
        answer = self.answers.get(key.id)
        return (_GONE, None) if answer is None else (_FOUND, self._found(key, dict(answer)))


@dataclass(frozen=True)
class _Api(HttpApi):
    answers: Answers = field(default_factory=dict)

    def made(
        self, environment: Mapping[str, str], state_of: Callable[[Mapping[str, Any]], S]
    ) -> HttpSource[S]:
        return _Source(self, state_of, "memory", {}, answers=self.answers)


def api_in_memory(source: HttpApi, answers: Answers) -> HttpApi:
    """The same declaration over these answers."""
    return _Api(source.address, source.sequence, source.answers_newest, answers=answers)

"""A publisher's API in memory; its answers are read by the same code as those over HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.sources.http import HttpApi, HttpSource
from cosmos_outbox.sources.nowhere import NoSource

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
class _Api(HttpApi[S]):
    answers: Answers = field(default_factory=dict)

    def made(self, environment: Mapping[str, str]) -> HttpSource[S]:
        return _Source(self, "memory", {}, answers=self.answers)


def api_in_memory(source: HttpApi[S] | NoSource[S], answers: Answers) -> HttpApi[S] | NoSource[S]:
    """Returns the declared source with these answers; a declaration without a source is returned unchanged."""
    if isinstance(source, NoSource):
        return source
    return _Api(
        source.address,
        source.state_of,
        source.sequence,
        source.answers_newest,
        first=source.first,
        answers=answers,
    )

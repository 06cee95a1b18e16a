"""A publisher's API in memory; its answers are read by the same code as those over HTTP."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.sources.http import HttpApi, HttpSource

S = TypeVar("S")

Respond = Callable[[AggregateKey, Mapping[str, str]], Awaitable[tuple[int, str, Any]]]
"""Returns the status, ``Retry-After`` and the JSON of the answer about an aggregate to a request with these headers."""


class Answers(dict[str, Mapping[str, Any]]):
    """The API's answers by aggregate id."""

    hidden = False
    """Whether a proxy answers in its place: 404 with a page of its own."""

    async def respond(self, key: AggregateKey, _: Mapping[str, str]) -> tuple[int, str, Any]:
        """See ``Respond``."""
        answer = self.get(key.id)
        if self.hidden:
            return 404, "", None
        return (410, "", None) if answer is None else (200, "", dict(answer))


@dataclass
class _Source(HttpSource[S]):
    respond: Respond = field(kw_only=True)

    async def _get(self, key: AggregateKey, headers: Mapping[str, str]) -> tuple[int, str, Any]:
        return await self.respond(key, headers)


@dataclass(frozen=True)
class _Api(HttpApi):
    respond: Respond = field(kw_only=True)

    def made(
        self, environment: Mapping[str, str], state_of: Callable[[Mapping[str, Any]], S]
    ) -> HttpSource[S]:
        return _Source(self, state_of, "memory", {}, respond=self.respond)


def api_in_memory(source: HttpApi, respond: Respond) -> HttpApi:
    """The same declaration over these answers."""
    return _Api(**vars(source), respond=respond)

"""The operator's part after the faults: broken events are discarded, the contacts behind them replayed.

It goes through the service's own administrative calls and writes down what it finds parked before it touches it.
"""

from dataclasses import dataclass, field

import aiohttp

from tests.torture.history import History
from tests.torture.journal import Journal, Parked
from tests.torture.listing import whole_list

_REASON = "the torture test broke it"


@dataclass
class Operator:
    """Deals with whatever is parked; what is still parked afterwards is in ``history.still_parked``."""

    url: str
    http: aiohttp.ClientSession
    journal: Journal
    history: History
    _seen: set[str] = field(default_factory=set)

    async def settle(self) -> bool:
        """Look once and deal with what is there; whether the list could be read and was empty."""
        parked = await whole_list(self.http, f"{self.url}/parked")
        if parked is None:
            return False
        self.history.still_parked = parked
        broken = {poison.document for poison in self.history.poisons}
        for item in parked:
            if item["id"] not in self._seen:
                self._seen.add(item["id"])
                self.journal.write(Parked(body=item))
            if item["eventId"] in broken:
                await self._post(f"parked/{item['id']}/discard", {"reason": _REASON})
        for contact in {str(item["contactId"]) for item in parked if item["contactId"]}:
            await self._post(f"parked/contacts/{contact}/replay", {})
        return not parked

    async def _post(self, path: str, body: dict[str, str]) -> None:
        """What fails now is done at the next look."""
        try:
            async with self.http.post(f"{self.url}/{path}", json=body) as answer:
                await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return

"""Break a service on demand: the same calls for Cosmos DB and Service Bus, both started with ``--faults``.

Which kinds there are, and what a request can be matched by, is in the COMPATIBILITY.md of each.
"""

from typing import Any

import aiohttp

CALL_SECONDS = 5.0


class Faults:
    """The faults of one service; ``address`` is that of its administrative calls."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    async def add(self, kind: str, **order: Any) -> None:
        """The next request that matches meets it, or the next ``count``.

        Raises ValueError for what the service does not know, and what aiohttp raises when it is away.
        """
        await self._call("POST", "faults", {"kind": kind, **order})

    async def pending(self) -> list[dict[str, Any]]:
        """Those that are still to happen."""
        faults: list[dict[str, Any]] = (await self._call("GET", "faults"))["faults"]
        return faults

    async def clear(self) -> None:
        """None is left that is still to happen."""
        await self._call("DELETE", "faults")

    async def traffic(self) -> dict[str, int]:
        """The ``transfers`` and ``messages`` that a Service Bus was sent since it began."""
        counts: dict[str, int] = await self._call("GET", "traffic")
        return counts

    async def split(self, database: str, container: str, partition: str) -> list[str]:
        """Split a physical partition of a Cosmos DB; the ids of the two that take its place."""
        body = {"database": database, "container": container, "range": partition}
        children: list[str] = (await self._call("POST", "split", body))["children"]
        return children

    async def turn_clock(self, ahead: float) -> None:
        """Let the clock of a Cosmos DB, by which ``_ts`` and TTL count, be so many seconds ahead; below 0: behind."""
        await self._call("POST", "clock", {"ahead": ahead})

    async def allow_multiple_writes(self, allowed: bool) -> None:
        """Let the account of a Cosmos DB say that it takes writes in several regions; it goes on working as one."""
        await self._call("POST", "account", {"enableMultipleWriteLocations": allowed})

    async def _call(self, method: str, call: str, body: dict[str, Any] | None = None) -> Any:
        url = f"{self._address}/_devstack/{call}"
        timeout = aiohttp.ClientTimeout(CALL_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, json=body) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"{method} {url} {body}: {answer.status} {await answer.text()}")
            return await answer.json()

"""An account that takes writes in several regions is never taken for a store that can be used.

There each region commits for itself, and the last writer wins afterwards: an ETag is compared in one region only, two
changes get one sequence, and two instances of the relay own one lease. No adapter can see it from an answer, so the
account's own document is asked.
"""

from dataclasses import dataclass
from typing import Any

from cosmos_outbox.settings.errors import Misconfigured

_WRITES_ELSEWHERE = (
    "the Cosmos DB account takes writes in several regions, and the last writer wins: changes overwrite one another "
    "in silence, sequences are given twice, and a lease has two owners. Turn multi-region writes off: "
    "docs/operate/regions.md"
)


@dataclass(frozen=True)
class Account:
    """What the account tells every client."""

    consistency: str | None
    """The default consistency level; None: its answer does not tell."""
    writes_in_several_regions: bool

    def check(self) -> None:
        """Return if the account can be used. Raises Misconfigured."""
        if self.writes_in_several_regions:
            raise Misconfigured(_WRITES_ELSEWHERE)


async def read_account(connection: Any) -> Account:
    """Ask the account, by the ``client_connection`` of a client or a container. Raises the SDK's errors."""
    # The synchronous client has a public call for it. Tests pin that this one is there, and the names.
    account = await connection.GetDatabaseAccount()
    policy = account.ConsistencyPolicy or {}
    return Account(
        policy.get("defaultConsistencyLevel"),
        bool(account._EnableMultipleWritableLocations),  # noqa: SLF001 - the SDK shows it nowhere else
    )

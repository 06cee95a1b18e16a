"""The Cosmos client, made from a connection setting without any I/O."""

from typing import TYPE_CHECKING, Any, Self

from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.store.sessions import SdkSessions
from cosmos_outbox.settings.connections import Connection, Credential

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["ContainerProxy", "CosmosClient", "cosmos_client"]

_THROTTLE_RETRIES = 3
_SECONDS = 3


class _Client(CosmosClient):
    """With sessions of the SDK that mix nothing up."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        session = self.client_connection.session
        if session is not None:  # the account's consistency is that of sessions
            session.session_container.rid_to_session_token = SdkSessions()
        return self


def cosmos_client(
    connection: Connection, credential: Credential | None, *, session: "ClientSession | None" = None
) -> CosmosClient:
    """A client with few retries of its own: a caller waits, and the unit of work repeats every call that is safe.

    ``session``: sends the requests in the place of aiohttp's own.
    """
    from urllib.request import getproxies  # noqa: PLC0415 - both are slow to import, and not needed before

    from cosmos_outbox.cosmos.store.transport import NotingTransport  # noqa: PLC0415

    options: dict[str, Any] = {
        # With them aiohttp starts two threads for each request, to look for a proxy and for a password in ~/.netrc.
        "transport": NotingTransport(use_env_settings=bool(getproxies()), session=session),
        "retry_total": 1,
        "retry_connect": 1,
        "retry_read": 1,
        "retry_throttle_total": _THROTTLE_RETRIES,
        "retry_throttle_backoff_max": _SECONDS,
        "connection_timeout": _SECONDS,
    }
    if connection.connection_string:
        return _Client.from_connection_string(connection.connection_string, **options)
    assert credential is not None
    return _Client(connection.address, credential, **options)

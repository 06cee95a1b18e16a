"""The Cosmos client, made from a connection setting without any I/O."""

from typing import TYPE_CHECKING, Any, Self

from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["ContainerProxy", "CosmosClient", "cosmos_client"]

_THROTTLE_RETRIES = 3
_SECONDS = 3


class _Tokens(dict[str, Any]):
    """Of a container that has none, none is deleted."""

    def __delitem__(self, container: str) -> None:
        self.pop(container, None)


class _Client(CosmosClient):
    """Fails alike at each read that meets a replica that lags.

    After the first one (404/1002) azure-cosmos 4.17 forgets the container's session, and at the next it ends with a
    KeyError, since there is none left to forget (``SessionContainer.clear_session_token``).
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        session = self.client_connection.session
        if session is not None:  # the account's consistency is that of sessions
            session.session_container.rid_to_session_token = _Tokens()
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

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


class _Sessions(dict[str, Any]):
    """Keeps nothing of a container whose id is not known, and deletes nothing that is not there."""

    def __setitem__(self, container: str | None, known: Any) -> None:
        if container is not None and known is not None:
            super().__setitem__(container, known)

    def __delitem__(self, container: str) -> None:
        self.pop(container, None)


class _Client(CosmosClient):
    """Asks no container for what another one has seen, and fails alike at each read that meets a replica that lags.

    azure-cosmos 4.17 learns a container's id by an item. It files the session token of an answer without one (a list,
    a 404) under None where it has not learned the id yet, for all containers: a read of one then asks for what another
    has seen, and fails (404/1002). After that it forgets the container's session, and at the next such answer it ends
    with a KeyError, since there is none left to forget (``SessionContainer.set_session_token``,
    ``clear_session_token``). We send our own tokens where we rely on one.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        session = self.client_connection.session
        if session is not None:  # the account's consistency is that of sessions
            session.session_container.collection_name_to_rid = _Sessions()
            session.session_container.rid_to_session_token = _Sessions()
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

"""The client repeats by itself, once, a request whose connection broke: a caller waits, and repeats what is safe."""

from typing import Any

import pytest
from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseTimeoutError
from azure.core.pipeline.transport import AioHttpTransport

from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.settings.connections import Connection
from devstack.testing import Service
from tests.support.azure import CONTACTS, contacts_database, cosmos_connection

ITEM = {"id": "there", "partitionKey": "ada", "type": "note"}


@pytest.mark.parametrize(
    "error", [ServiceRequestError("no connection"), ServiceResponseTimeoutError("silence")]
)
@pytest.mark.parametrize(("times", "sent"), [(1, 2), (9, 2)])
async def test_a_connection_that_breaks_is_tried_once_more(
    cosmos_server: Service, monkeypatch: pytest.MonkeyPatch, error: AzureError, times: int, sent: int
) -> None:
    send, requests = AioHttpTransport.send, list[str]()

    async def breaks(transport: AioHttpTransport, request: Any, **options: Any) -> Any:
        if "/docs/there" in request.url:
            requests.append(request.method)
            if len(requests) <= times:
                raise error
        return await send(transport, request, **options)

    async with (
        contacts_database(cosmos_server) as database,
        cosmos_client(Connection(cosmos_connection(cosmos_server)), None) as client,
    ):
        await database.get_container_client(CONTACTS).create_item(ITEM)
        container = client.get_database_client(database.id).get_container_client(CONTACTS)
        monkeypatch.setattr(AioHttpTransport, "send", breaks)
        if times < sent:
            assert (await container.read_item("there", "ada"))["id"] == "there"
        else:
            with pytest.raises(type(error)):
                await container.read_item("there", "ada")
    assert len(requests) == sent

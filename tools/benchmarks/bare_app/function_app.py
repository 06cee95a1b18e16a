"""POST contacts in a program without an outbox: the SDK writes a contact and its event in one batch."""

import json
import os
import uuid
from typing import Any

import azure.functions as func
from azure.cosmos.aio import ContainerProxy, CosmosClient

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
_made: list[ContainerProxy] = []


def _contacts() -> ContainerProxy:
    if not _made:
        client = CosmosClient.from_connection_string(os.environ["COSMOS"])
        _made.append(
            client.get_database_client(os.environ["COSMOS_DATABASE"]).get_container_client("contacts")
        )
    return _made[0]


@app.route(route="contacts", methods=["POST"])
async def create_contact(req: func.HttpRequest) -> func.HttpResponse:
    """Answers 201, and checks nothing."""
    contact_id = str(uuid.uuid4())
    data: dict[str, Any] = req.get_json() | {"id": contact_id}
    documents: list[dict[str, Any]] = [
        {"id": contact_id, "partitionKey": contact_id, "type": "contact", "data": data},
        {"id": str(uuid.uuid4()), "partitionKey": contact_id, "type": "domainEvent", "data": data},
    ]
    await _contacts().execute_item_batch([("create", (each,)) for each in documents], contact_id)
    return func.HttpResponse(json.dumps(data), status_code=201, mimetype="application/json")

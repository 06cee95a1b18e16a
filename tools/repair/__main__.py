"""``python -m tools.repair get|put|show ID PARTITION_KEY``: put overwrites only the version that get has read.

It lies in ``document.json`` in between, for the operator who repairs it (docs/operate/recipes.md); ``show`` prints one.
The settings are the app's, from the environment.
"""

import json
import os
import sys
from pathlib import Path

from azure.core import MatchConditions
from azure.cosmos import CosmosClient

FILE = Path("document.json")


def client() -> CosmosClient:
    if "COSMOS" in os.environ:
        return CosmosClient.from_connection_string(os.environ["COSMOS"])
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - a connection string needs none

    account = os.environ["COSMOS__accountEndpoint"]  # noqa: SIM112 - as the Functions host names it
    return CosmosClient(account, DefaultAzureCredential())


def main(step: str, item_id: str, partition_key: str) -> None:
    database = client().get_database_client(os.environ["COSMOS_DATABASE"])
    container = database.get_container_client(os.environ.get("COSMOS_CONTAINER", "contacts"))
    if step != "put":
        text = json.dumps(container.read_item(item_id, partition_key), indent=2)
        FILE.write_text(text) if step == "get" else sys.stdout.write(f"{text}\n")
        return
    document = json.loads(FILE.read_text())
    container.replace_item(
        item_id, document, etag=document["_etag"], match_condition=MatchConditions.IfNotModified
    )


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("get", "put", "show"):
        sys.exit("usage: python -m tools.repair get|put|show ID PARTITION_KEY")
    main(*sys.argv[1:])

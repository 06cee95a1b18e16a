"""What lies beside an aggregate's events, in its partition or in its place in the archive, is not told as its past."""

import json
from typing import Any
from uuid import uuid4

import pytest

from cosmos_outbox.cosmos.store.writes import Write
from tests.contract.test_past_changes import Past, past, places

__all__ = ["past"]


async def test_many_broken_documents_beside_an_event_do_not_hide_it(past: Past) -> None:
    for _ in range(4):
        item_id = str(uuid4())
        item = {
            "id": item_id, "partitionKey": past.contact.aggregate_id, "type": "domainEvent",
            "aggregateType": "contact", "data": {"id": "another id", "sequence": 3},
        }  # fmt: skip
        await past.store.container.execute(past.contact.aggregate_id, [Write.create(item)])
    await past.change("7")
    assert places(await past.page()) == [7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("document", "data"),
    [
        ({}, {"createdAt": "yesterday"}),
        ({"type": "memo"}, {}),
        ({"aggregateId": "another"}, {"contactId": "another"}),
        ({}, {"sequence": 30}),
    ],
)
async def test_what_an_archive_has_in_the_place_of_an_event_ends_its_past(
    past: Past, document: dict[str, Any], data: dict[str, Any]
) -> None:
    """Somebody edited the archive, or put back a file of another one."""
    await past.archived(1, 2, 3, 4, 5)
    await past.expire(1, 2, 3, 4, 5)
    for name, (body, version) in past.archive.contents.items():
        lines = [json.loads(text) for text in body.splitlines()]
        for line in lines:
            if line["sequence"] == 3:
                line["document"] |= document
                line["document"]["data"] |= data
        past.archive.contents[name] = b"\n".join(json.dumps(line).encode() for line in lines), version
    page = await past.page()
    assert (places(page), page.complete_from) == ([6, 5, 4], 4)

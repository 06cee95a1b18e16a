"""A continuation token that somebody has made, for the right list and with any content, is refused as a bad request."""

from urllib.parse import quote

import aiohttp
import pytest

from cosmos_outbox.lists.continuation import seal
from infra.bootstrap import DIRECTORY, service
from tests.e2e.conftest import Stack

CONTENTS = [
    "x", "{}", "[]", "null", '"x"', "[1, 2]", '["a"]', '["a", "b", "c"]', '[{"a": 1}, {}]', '["a", [1]]', "[[], []]",
    '{"token": "+RID:~abc#RT:1#TRC:2", "range": {"min": "", "max": "FF"}}', "a\r\nx-ms-injected: 1", "\0", "é", "\x7f",
    "-RID:x#RT:1", "[" * 3000, "1" * 5000, '["", null]',
]  # fmt: skip


def lists(stack: Stack) -> dict[str, str]:
    """The list at each path, as tokens name it: whoever knows the names of a deployment can work it out."""
    made = service.settings(stack.settings)
    database = f"{made.cosmos.address}/{made.cosmos_database}"
    contacts = f"{database}/{made.cosmos_container}"
    return {
        "contacts": f'{contacts}/["contact", "created", [], null, null]',
        "directory": f"{database}/{made.name(DIRECTORY.container)}/name/[]",
        "parked": f"{contacts}/parked",
        "parked?state=discarded": f"{contacts}/parked/discarded",
        "set-aside": f"{database}/{made.cosmos_set_aside_container}/{made.name(DIRECTORY.subscription)}",
    }


@pytest.mark.parametrize("path", ["contacts", "directory", "parked", "parked?state=discarded", "set-aside"])
async def test_a_token_with_any_content_is_refused(
    shared_stack: Stack, http: aiohttp.ClientSession, path: str
) -> None:
    await shared_stack.create(http)
    url, scope = f"{shared_stack.url}/{path}", lists(shared_stack)[path]
    answers = {}
    for content in CONTENTS:
        token = seal(scope, content)
        async with http.get(f"{url}{'&' if '?' in path else '?'}continuationToken={quote(token)}") as answer:
            answers[content] = answer.status, (await answer.json())["errors"]
    wrong = {content: told for content, told in answers.items() if told[0] != 400}
    assert wrong == {}
    assert {errors[0]["field"] for _, errors in answers.values()} == {"continuationToken"}
    assert "Traceback" not in shared_stack.log()

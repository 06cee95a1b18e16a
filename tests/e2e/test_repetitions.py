"""A request that is repeated after its answer was lost behaves as docs/use/api.md says."""

from typing import Any

import aiohttp

from tests.e2e.conftest import Stack


async def patched(http: aiohttp.ClientSession, url: str, patch: dict[str, Any], **headers: str) -> str:
    async with http.patch(url, json=patch, headers=headers) as answer:
        assert answer.status == 200
        return answer.headers["ETag"]


async def test_a_repeated_patch_stores_nothing_when_nobody_came_in_between(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    first = await patched(http, url, {"description": "mine"})
    assert await patched(http, url, {"description": "mine"}) == first


async def test_a_repeated_patch_sets_its_fields_again_over_another_writers_and_no_others(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    await patched(http, url, {"description": "mine"})
    await patched(http, url, {"description": "a rival's", "email": "rival@contoso.com"})
    await patched(http, url, {"description": "mine"})
    async with http.get(url) as answer:
        final = await answer.json()
    assert (final["description"], final["email"]) == ("mine", "rival@contoso.com")
    assert await shared_stack.sequences(contact["id"], 5) == [1, 2, 3, 4, 5]


async def test_a_repeated_patch_that_pins_a_version_is_refused_once_it_was_stored(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    async with http.get(url) as answer:
        pinned = {"If-Match": answer.headers["ETag"]}
    await patched(http, url, {"description": "mine"}, **pinned)
    async with http.patch(url, json={"description": "mine"}, headers=pinned) as answer:
        assert answer.status == 412


async def test_a_repeated_deletion_finds_nothing(shared_stack: Stack, http: aiohttp.ClientSession) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    async with http.get(url) as answer:
        pinned = {"If-Match": answer.headers["ETag"]}
    async with http.delete(url, headers=pinned) as answer:
        assert answer.status == 204
    for headers in (pinned, {}):
        async with http.delete(url, headers=headers) as answer:
            assert answer.status == 404

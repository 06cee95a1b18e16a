"""Two instances answer requests with one key, while answers of the store get lost and its replicas lag."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Stack, stack
from tests.support.contacts import DETAILS_JSON
from tests.support.paths import ROOT

pytestmark = pytest.mark.own_stack

CLAIM = {"container": "claims", "operation": "create"}
CLAIM_READ = {"container": "claims", "operation": "read"}
BATCH = {"container": "contacts", "operation": "batch"}
LONG = 12
"""More than the app and the SDK repeat on their own."""


@dataclass
class Two:
    """A stack with two instances of the app."""

    stack: Stack
    urls: list[str]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with stack(tmp_path_factory.mktemp("stack")) as started:
        other = started.run_another(ROOT, "functions-2")
        hosts = [started.functions, other]
        yield Two(started, [f"{host.address.rstrip('/')}/api/contacts" for host in hosts])


async def post(
    http: aiohttp.ClientSession,
    url: str,
    key: str,
    body: Mapping[str, Any] = DETAILS_JSON,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, Any], bool]:
    sent = {"Idempotency-Key": key, **(headers or {})}
    async with http.post(url, json=dict(body), headers=sent) as answer:
        if answer.status in (429, 503):
            assert int(answer.headers["Retry-After"]) >= 1
        return answer.status, await answer.json(), "Idempotency-Replayed" in answer.headers


async def test_of_five_requests_at_once_at_two_instances_one_creates_and_all_get_the_answer(
    two: Two, http: aiohttp.ClientSession
) -> None:
    key, both = str(uuid.uuid4()), two.urls
    answers = await asyncio.gather(*(post(http, both[number % 2], key) for number in range(5)))
    assert {status for status, _, _ in answers} == {201}
    assert [replayed for _, _, replayed in answers].count(False) == 1
    [contact_id] = {body["id"] for _, body, _ in answers}
    assert await two.stack.sequences(contact_id, 1) == [1]
    assert await two.stack.topic.is_empty(contact_id)


FAULTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "the claim is not made": [("fail-before-commit", {"count": LONG, **CLAIM})],
    "the claim's answer is lost": [("drop-after-commit", {"count": 1, **CLAIM})],
    "the claim's answer is lost for long": [("drop-after-commit", {"count": LONG, **CLAIM})],
    "the claim's outcome is not told": [("unavailable", {"count": 3, **CLAIM})],
    "the claim is throttled": [("throttle", {"count": LONG, "retryAfterMs": 10, **CLAIM})],
    "the claim is not read": [
        ("drop-after-commit", {"count": 1, **CLAIM}),
        ("fail-before-commit", {"count": LONG, **CLAIM_READ}),
    ],
    "the claim's answer is lost, and its repetition is throttled": [
        ("drop-after-commit", {"count": 1, **CLAIM}),
        ("throttle", {"count": LONG, "retryAfterMs": 10, **CLAIM}),
    ],
    "the batch's answer is lost, and its repetition is throttled": [
        ("drop-after-commit", {"count": 1, **BATCH}),
        ("throttle", {"count": LONG, "retryAfterMs": 10, **BATCH}),
    ],
    "the batch is not stored": [("fail-before-commit", {"count": LONG, **BATCH})],
    "the batch's answer is lost": [("drop-after-commit", {"count": LONG, **BATCH})],
    "both answers are lost": [
        ("drop-after-commit", {"count": 1, **CLAIM}),
        ("drop-after-commit", {"count": LONG, **BATCH}),
    ],
}


# Over processes and sockets the worst of them is enough. Each loss is met in memory by test_keyed_changes and
# test_claims of tests/contract, and by the simulation, whose rules are "done twice" and "refused, and done".
AT_EVERY_RUN = ("both answers are lost", True)


@pytest.mark.parametrize(
    ("case", "lagging"),
    [
        pytest.param(
            case,
            lagging,
            id=f"{case}{', old reads' * lagging}",
            marks=() if (case, lagging) == AT_EVERY_RUN else pytest.mark.long,
        )
        for case in FAULTS
        for lagging in (False, True)
    ],
)
async def test_whatever_is_lost_a_repetition_at_another_instance_finds_out(
    two: Two, http: aiohttp.ClientSession, case: str, lagging: bool
) -> None:
    key, both = str(uuid.uuid4()), two.urls
    faults = two.stack.cosmos.faults
    if lagging:
        for container in ("claims", "contacts"):
            await faults.add("lag", container=container, seconds=600.0, count=None)
    for kind, order in FAULTS[case]:
        await faults.add(kind, forSeconds=2.0, **order)
    first = await post(http, both[0], key)
    assert first[0] in (201, 429, 503), first
    for kind, order in FAULTS[case]:
        await faults.add(kind, forSeconds=0.2, **order)
    status, contact, _ = await post(http, both[1], key)
    while status != 201:
        assert status in (429, 503), contact
        status, contact, _ = await post(http, both[1], key)
    await faults.clear()
    for url in both:
        again = await post(http, url, key)
        assert again == (201, contact, True)
    assert first[0] != 201 or first[1] == contact
    assert await two.stack.sequences(contact["id"], 1) == [1]
    assert await two.stack.topic.is_empty(contact["id"])
    async with http.get(both[0], params={"pageSize": "100"}) as answer:
        ids = [each["id"] for each in (await answer.json())["items"]]
    assert ids.count(contact["id"]) == 1


async def test_a_key_belongs_to_its_caller_and_a_made_up_principal_is_none(
    two: Two, http: aiohttp.ClientSession
) -> None:
    key, url = str(uuid.uuid4()), two.urls[0]
    callers: list[dict[str, str]] = [{}, {"x-functions-key": "one"}, {"x-functions-key": "two"}]
    answers = [await post(http, url, key, headers=headers) for headers in callers]
    assert [(status, replayed) for status, _, replayed in answers] == [(201, False)] * 3
    assert len({body["id"] for _, body, _ in answers}) == 3
    forged = {"x-ms-client-principal-id": "somebody", "x-ms-client-principal-idp": "aad"}
    assert await post(http, url, key, headers=forged) == (201, answers[0][1], True)
    assert await post(http, f"{url}?code=two", key) == (201, answers[2][1], True)
    log = two.stack.log()
    assert key not in log
    assert "somebody" not in log


async def test_a_refused_body_leaves_its_key_to_the_corrected_one(
    two: Two, http: aiohttp.ClientSession
) -> None:
    key, url = str(uuid.uuid4()), two.urls[0]
    refused: list[dict[str, Any]] = [
        {"email": "no address"},
        {"unknown": 1},
        {"description": "x" * 70_000},
        {"description": "9999-12-31T24:00:00"},
    ]
    for wrong in refused:
        status, _, _ = await post(http, url, key, DETAILS_JSON | wrong)
        assert status in (400, 413), wrong
    status, contact, replayed = await post(http, url, key)
    assert (status, replayed) == (201, False)
    assert (await post(http, url, key, DETAILS_JSON | {"email": "other@contoso.com"}))[0] == 422
    async with http.post(
        url,
        data=str(DETAILS_JSON).replace("'", '"').replace('": "', '" :"'),
        headers={"Idempotency-Key": key, "Content-Type": "application/json"},
    ) as answer:
        assert (answer.status, await answer.json()) == (201, contact)


async def test_after_a_deletion_the_first_answer_is_gone_at_every_instance_with_old_reads_too(
    two: Two, http: aiohttp.ClientSession
) -> None:
    key, both = str(uuid.uuid4()), two.urls
    _, contact, _ = await post(http, both[0], key)
    async with http.delete(f"{both[0]}/{contact['id']}") as answer:
        assert answer.status == 204
    for url in both:
        assert (await post(http, url, key))[0] == 410
    assert await two.stack.sequences(contact["id"], 2) == [1, 2]
    assert await two.stack.topic.is_empty(contact["id"])

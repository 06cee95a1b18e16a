"""A contact's events reach a webhook's receiver, from the transaction to the signed request, in order."""

import asyncio
import json
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.e2e.conftest import stack
from tests.e2e.test_relay_worker import create, service, settings
from tests.support import command
from tests.support.receiver import SECRET, Answer, Got, receiving, says

pytestmark = pytest.mark.own_stack


async def test_committed_events_arrive_signed_though_the_receiver_fails_first(tmp_path: Path) -> None:
    failed: set[str] = set()

    def at_first(got: Got) -> Answer:
        if got.id not in failed:
            failed.add(got.id)
            return says(503)
        return says(204)

    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        async with receiving(at_first) as receiver, service(started) as contacts:
            ids = [str(await create(contacts)) for _ in range(5)]
            environment = {
                name: value for name, value in settings(started).items() if not name.startswith("SERVICEBUS")
            } | {"TRANSPORT": "webhook", "WEBHOOK_URL": receiver.url, "WEBHOOK_SECRETS": SECRET}
            done = await asyncio.to_thread(
                command.run_command, "relay", "--once", environment=environment | {"PATH": "/usr/bin:/bin"}
            )
    assert done.code == 0, done.err
    assert "5 event(s) forwarded" in done.out
    assert "subscribers must drop events that they have handled" in done.err
    taken = receiver.got[-5:]
    assert sorted(json.loads(got.body)["subject"] for got in taken) == sorted(ids)
    for got in taken:
        Webhook(SECRET).verify(got.body, got.headers)

"""Preflight names a refused access and a service that does not answer; neither counts as right."""

import asyncio
import base64
import json
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from azure.core.credentials import AccessToken
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cli.preflight import main
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.preflight.checks import check
from cosmos_outbox.preflight.plan import Plan, plan_for
from cosmos_outbox.settings.connections import Credential
from devstack.testing import Service, running
from infra.bootstrap import service as contact_service
from tests.preflight.deployment import Deployment, deployed, preflight
from tests.support.emulators import Gap
from tests.support.gaps import gappy

RIGHT = Deployment()
SERVICEBUS_ON_LOOPBACK = (
    "Endpoint=sb://127.0.0.1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true;"
)


async def test_a_wrong_key_is_denied_access(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    environment["COSMOS"] = environment["COSMOS"].replace("AccountKey=C2y6", "AccountKey=D2y6")
    environment["SERVICEBUS"] = environment["SERVICEBUS"].replace("SAS_KEY_VALUE", "ANOTHER_KEY")
    code, complaints = await preflight(environment, capsys)
    assert len(complaints) == 2, complaints
    cosmos, servicebus = complaints
    assert code == 1
    assert cosmos.startswith("wrong    Cosmos DB: access is denied: (Unauthorized)")
    assert "Fix: put the account's key in COSMOS" in cosmos
    assert servicebus.startswith("wrong    Service Bus: access is denied: ")
    assert "Fix: put a key with the claim Manage in SERVICEBUS" in servicebus
    assert "D2y6" not in cosmos + servicebus
    assert "ANOTHER_KEY" not in cosmos + servicebus


async def test_nothing_reachable_is_not_taken_for_right(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;",
        "SERVICEBUS": SERVICEBUS_ON_LOOPBACK,
        "SERVICEBUS_ADMIN_PORT": "1",
    }
    code, (cosmos, servicebus) = await preflight(environment, capsys)
    assert code == 2
    assert cosmos.startswith("unknown  Cosmos DB: cannot be reached")
    assert servicebus.startswith("unknown  Service Bus: cannot be reached")


async def test_services_that_hang_are_given_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.cosmos.maintenance.inspection.DEADLINE_SECONDS", 0.5)
    monkeypatch.setattr("cosmos_outbox.servicebus.inspection.DEADLINE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        environment = {
            "COSMOS": f"AccountEndpoint=http://127.0.0.1:{port}/;AccountKey=a2V5;",
            "SERVICEBUS": SERVICEBUS_ON_LOOPBACK,
            "SERVICEBUS_ADMIN_PORT": str(port),
        }
        code, (cosmos, servicebus) = await preflight(environment, capsys)
    assert code == 2
    assert cosmos.startswith("unknown  Cosmos DB: does not answer within 0.5 s")
    assert servicebus.startswith("unknown  Service Bus: does not answer within 0.5 s")


async def test_a_store_that_ignores_conditions_is_wrong(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    async with gappy(environment["COSMOS"], [Gap.BATCH_IGNORES_ETAG]) as environment["COSMOS"]:
        code, complaints = await preflight(environment, capsys, "--as-app")
    assert code == 1
    assert "wrong    container contacts: the store ignores If-Match" in complaints[0]


async def test_one_service_is_checked_while_the_other_is_away(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(Deployment(topic={}, leases=None), cosmos_server, servicebus_server)
    environment["SERVICEBUS_ADMIN_PORT"] = "1"
    code, (leases, servicebus) = await preflight(environment, capsys)
    assert leases.startswith("wrong    container leases: does not exist")
    assert servicebus.startswith("unknown  Service Bus: ")
    assert code == 1


@pytest.mark.parametrize(
    ("cosmos", "servicebus"),
    [
        ("nonsense", "nonsense"),
        ("AccountEndpoint=http://127.0.0.1:1/;", "SharedAccessKeyName=n;SharedAccessKey=k"),
        ("AccountEndpoint=http://127.0.0.1:1/;AccountKey=damaged;", "Endpoint=sb://127.0.0.1"),
    ],
)
async def test_a_connection_string_that_cannot_be_used_is_to_be_copied_again(
    cosmos: str, servicebus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, complaints = await preflight({"COSMOS": cosmos, "SERVICEBUS": servicebus}, capsys)
    assert code == 2
    wrong = "holds no connection string that can be used: a part is missing, or its key is damaged"
    copy_again = (
        "copy the connection string of the {} into {} again, or remove {} and set {} to use an identity"
    )
    account = copy_again.format("account", "COSMOS", "COSMOS", "COSMOS__accountEndpoint")
    namespace = copy_again.format(
        "namespace", "SERVICEBUS", "SERVICEBUS", "SERVICEBUS__fullyQualifiedNamespace"
    )
    assert complaints == [
        f"unknown  Cosmos DB: COSMOS {wrong}. Fix: {account}",
        f"unknown  Service Bus: SERVICEBUS {wrong}. Fix: {namespace}",
    ]


async def test_each_call_of_the_app_is_tried_and_leaves_no_trace(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    code = await asyncio.to_thread(main, ["--as-app"], environment)
    output = capsys.readouterr().out
    assert code == 0, output
    for subject in ("container contacts", "container leases", "container parked-events", "container claims"):
        assert f"ok       {subject}: may be used as the role Cosmos DB Built-in Data Contributor" in output
    assert (
        f"topic {environment['SERVICEBUS_TOPIC']}: may be used as the role Azure Service Bus Data S" in output
    )
    assert "subscription contact-directory: may be used as the role Azure Service Bus Data Receiver" in output
    async with CosmosClient.from_connection_string(environment["COSMOS"]) as client:
        database = client.get_database_client(environment["COSMOS_DATABASE"])
        for name in ("contacts", "leases", "parked-events", "claims"):
            items = database.get_container_client(name).read_all_items()
            assert [item async for item in items] == []


async def test_a_call_that_the_app_may_not_make_names_the_missing_role(
    cosmos_server: Service, servicebus_server: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    environment["SERVICEBUS"] = environment["SERVICEBUS"].replace("SAS_KEY_VALUE", "ANOTHER_KEY")
    code, (_, topic, subscription) = await preflight(environment, capsys, "--as-app")
    assert code == 1
    assert topic.startswith(f"wrong    topic {environment['SERVICEBUS_TOPIC']}: the app is denied access")
    assert "the role Azure Service Bus Data Sender on the topic" in topic
    assert subscription.startswith("wrong    subscription contact-directory: the app is denied access")
    assert "the role Azure Service Bus Data Receiver on the subscription" in subscription


def plan(environment: dict[str, str]) -> Plan:
    return plan_for(
        contact_service,
        environment,
        other_subscriptions=(),
        survive=timedelta(hours=1),
        as_app=False,
        emulator_port=int(environment["SERVICEBUS_ADMIN_PORT"]),
    )


@pytest.mark.parametrize(("minutes", "said"), [(20, "20 min ahead of"), (-20, "20 min behind")])
async def test_a_clock_that_is_off_is_said(
    minutes: int, said: str, cosmos_server: Service, servicebus_server: Service
) -> None:
    environment = await deployed(RIGHT, cosmos_server, servicebus_server)
    findings = await check(plan(environment), None, clock=lambda: utc_now() + timedelta(minutes=minutes))
    (line,) = [str(finding) for finding in findings if not str(finding).startswith("ok ")]
    assert line.startswith(f"wrong    clock: this machine's clock is {said} the account's")


class SignedIn:
    """A developer's sign-in, for as long as ``seconds``: what ``az login`` would give."""

    def __init__(self, seconds: int) -> None:
        self._ends = int(time.time()) + seconds

    async def get_token(self, *_: str, **__: object) -> AccessToken:
        """An unsigned token of Entra's form."""
        claims = json.dumps({"nbf": int(time.time()) - 7200, "exp": self._ends, "oid": "someone"})
        part = base64.urlsafe_b64encode(claims.encode()).decode().rstrip("=")
        return AccessToken(f"e30.{part}.signature", int(time.time()) + 3600)

    async def close(self) -> None:
        """Nothing is open."""


async def test_without_a_key_the_callers_sign_in_is_used_and_its_role_named(
    servicebus_server: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The SDK sends tokens over TLS only, and devstack has none; all else is as it is in Azure.
    monkeypatch.setattr("azure.core.pipeline.policies._authentication_async._enforce_https", lambda _: None)
    folder = tmp_path / "cosmos"
    with running(Service("cosmos", folder, "--accept-entra")) as cosmos:
        environment = await deployed(RIGHT, cosmos, servicebus_server)
        del environment["COSMOS"]
        environment["COSMOS__accountEndpoint"] = cosmos.address
        taken = await check(plan(environment), cast(Credential, SignedIn(3600)))
        assert [str(finding) for finding in taken if not str(finding).startswith("ok ")] == []

        refused = await check(plan(environment), cast(Credential, SignedIn(-60)))
        (line,) = [str(finding) for finding in refused if not str(finding).startswith("ok ")]
        assert line.startswith("wrong    Cosmos DB: access is denied: ")
        assert "the role Cosmos DB Built-in Data Reader on the account" in line

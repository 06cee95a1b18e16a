"""The management API through the SDK's administration client, and the Config.json at start."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import CorrelationRuleFilter

from devstack.servicebus.amqp.properties import read_duration, write_duration
from devstack.testing import Service, running
from servicebus.support import admin_port, administration, new_topic, unique
from servicebus.test_security import sas


async def test_a_queue_has_its_given_properties_and_keeps_the_fixed_ones(servicebus_server: Service) -> None:
    name = unique("queue")
    async with administration(servicebus_server) as admin:
        await admin.create_queue(
            name,
            lock_duration=timedelta(seconds=45),
            max_delivery_count=3,
            default_message_time_to_live=timedelta(hours=1, minutes=2),
            dead_lettering_on_message_expiration=True,
            requires_session=True,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(minutes=20),
            max_size_in_megabytes=2048,
            user_metadata="kept",
        )
        found = await admin.get_queue(name)
        assert (found.lock_duration, found.max_delivery_count) == (timedelta(seconds=45), 3)
        assert found.default_message_time_to_live == timedelta(hours=1, minutes=2)
        assert found.dead_lettering_on_message_expiration
        assert found.requires_session
        assert found.requires_duplicate_detection
        assert found.duplicate_detection_history_time_window == timedelta(minutes=20)
        assert (found.max_size_in_megabytes, found.user_metadata) == (2048, "kept")

        found.max_delivery_count = 7
        await admin.update_queue(found)
        assert (await admin.get_queue(name)).max_delivery_count == 7
        found.requires_session = False
        with pytest.raises(HttpResponseError, match="cannot be changed"):
            await admin.update_queue(found)
        await admin.delete_queue(name)
        with pytest.raises(ResourceNotFoundError):
            await admin.get_queue(name)


async def test_what_exists_twice_or_not_at_all_or_is_not_supported_is_refused(
    servicebus_server: Service,
) -> None:
    async with new_topic(servicebus_server) as topic, administration(servicebus_server) as admin:
        with pytest.raises(ResourceExistsError):
            await admin.create_topic(topic.upper())
        with pytest.raises(ResourceExistsError):
            await admin.create_queue(topic)
        with pytest.raises(ResourceNotFoundError):
            await admin.delete_queue("no-such-queue")
        with pytest.raises(ResourceNotFoundError):
            await admin.create_subscription("no-such-topic", "s")
        with pytest.raises(ResourceNotFoundError):
            await admin.create_queue(unique("queue"), forward_to="elsewhere")
        with pytest.raises(HttpResponseError, match="ForwardTo cannot be set"):
            await admin.create_queue(unique("queue"), forward_to=topic, requires_session=True)
        for name in ("", "a" * 261, "with space", "-dash"):
            with pytest.raises(HttpResponseError, match="cannot be a name"):
                await admin.create_queue(name)
        with pytest.raises(HttpResponseError, match="MaxMessageSizeInKilobytes"):
            await admin.create_queue(unique("queue"), max_message_size_in_kilobytes=102_401)
        with pytest.raises(HttpResponseError, match="LockDuration"):
            await admin.create_queue(unique("queue"), lock_duration=timedelta(minutes=6))


async def test_lists_are_paged(servicebus_server: Service) -> None:
    async with new_topic(servicebus_server) as topic, administration(servicebus_server) as admin:
        names = [f"s{number:03d}" for number in range(5)]
        for name in names:
            await admin.create_subscription(topic, name)

        assert [s.name async for s in admin.list_subscriptions(topic, max_page_size=2)] == names
        assert topic in [t.name async for t in admin.list_topics()]
        assert (await admin.get_topic_runtime_properties(topic)).subscription_count == 5


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/order-events", None, 401),
        ("PUT", "/x", "<entry", 401),
    ],
)
async def test_every_request_needs_a_token(
    servicebus_server: Service, method: str, path: str, body: str | None, status: int
) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, servicebus_server.addresses[1] + path, data=body) as answer,
    ):
        assert answer.status == status
        assert "<Code>401</Code>" in await answer.text()


async def written(service: Service, path: str) -> str:
    """An answer of the management API as text."""
    token = sas(f"http://127.0.0.1:{admin_port(service)}/")
    async with (
        aiohttp.ClientSession(headers={"Authorization": token}) as session,
        session.get(f"{service.addresses[1]}/{path}?api-version=2021-05") as answer,
    ):
        return await answer.text()


async def test_answers_have_the_form_of_the_services_own(servicebus_server: Service) -> None:
    """The JavaScript client reads prefixes and ids as text: a document that only means the same is of no use to it."""
    connect = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
    declared = f'xmlns="{connect}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    counts = '<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus"><d2p1:ActiveMessageCount>'
    base = servicebus_server.addresses[1]
    async with new_topic(servicebus_server) as topic, administration(servicebus_server) as admin:
        await admin.create_subscription(topic, "s")
        await admin.create_rule(
            topic, "s", "r", filter=CorrelationRuleFilter(label="x", properties={"n": 1, "hot": True})
        )
        entity = await written(servicebus_server, topic)
        subscription = await written(servicebus_server, f"{topic}/subscriptions/s")
        rule = await written(servicebus_server, f"{topic}/subscriptions/s/rules/r")
        rules = await written(servicebus_server, f"{topic}/Subscriptions/s/Rules")

    assert entity.startswith('<entry xmlns="http://www.w3.org/2005/Atom"><id>')
    assert f'<content type="application/xml"><TopicDescription {declared}><' in entity
    assert counts in entity
    assert f"<id>{base}/{topic}/Subscriptions/s?api-version=2021-05</id>" in subscription
    assert f"<SubscriptionDescription {declared}><LockDuration>PT1M</LockDuration>" in subscription
    assert (
        "<DeadLetteringOnFilterEvaluationExceptions>true</DeadLetteringOnFilterEvaluationExceptions>"
        in subscription
    )
    assert f"<id>{base}/{topic}/Subscriptions/s/Rules/r?api-version=2021-05</id>" in rule
    assert f'<RuleDescription {declared}><Filter i:type="CorrelationFilter"><Label>x</Label>' in rule
    assert (
        '<Key>n</Key><Value i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">1</Value>' in rule
    )
    assert '<Action i:type="EmptyRuleAction" />' in rule
    assert rules.startswith('<feed xmlns="http://www.w3.org/2005/Atom">')
    assert f"<id>{base}/{topic}/Subscriptions/s/Rules/$Default?api-version=2021-05</id>" in rules
    assert not any(":entry" in text or "ns0" in text for text in (entity, subscription, rule, rules))


# -- Config.json


def config(*, queues: list[Any] | None = None, topics: list[Any] | None = None) -> str:
    namespace = {"Name": "sbemulatorns", "Queues": queues or [], "Topics": topics or []}
    return json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}})


RULES = [
    {
        "Name": "correlation",
        "Properties": {
            "FilterType": "Correlation",
            "CorrelationFilter": {"Label": "order", "Properties": {"n": "1"}},
        },
    },
    {
        "Name": "sql",
        "Properties": {
            "FilterType": "Sql",
            "SqlFilter": {"SqlExpression": "color = 'red'"},
            "Action": {"SqlExpression": "SET color = 'green'"},
        },
    },
]


@pytest.fixture
def declared(tmp_path: Path) -> Iterator[Service]:
    queue = {
        "Name": "q",
        "Properties": {"LockDuration": "PT2M", "RequiresSession": True, "MaxDeliveryCount": 4},
    }
    subscriptions = [{"Name": "s", "Properties": {"DeadLetteringOnMessageExpiration": True}, "Rules": RULES}]
    file = tmp_path / "Config.json"
    file.write_text(
        config(queues=[queue], topics=[{"Name": "t", "Properties": {}, "Subscriptions": subscriptions}])
    )
    folder = tmp_path / "data"
    with running(Service("servicebus", folder, "--config", str(file))) as service:
        yield service


async def test_declared_entities_exist_and_a_changed_declaration_is_applied(declared: Service) -> None:
    async with administration(declared) as admin:
        queue = await admin.get_queue("q")
        assert (queue.lock_duration, queue.requires_session, queue.max_delivery_count) == (
            timedelta(minutes=2),
            True,
            4,
        )
        correlation, sql = [rule async for rule in admin.list_rules("t", "s")]
        assert (correlation.name, correlation.action) == ("correlation", None)
        assert (sql.name, sql.action and sql.action.sql_expression) == ("sql", "SET color = 'green'")
        assert (await admin.get_subscription("t", "s")).dead_lettering_on_message_expiration
    file = declared.folder.parent / "Config.json"
    declared.terminate()
    file.write_text(file.read_text().replace("PT2M", "PT3M"))
    declared.start()
    async with administration(declared) as admin:
        assert (await admin.get_queue("q")).lock_duration == timedelta(minutes=3)
    declared.terminate()
    file.write_text(file.read_text().replace('"RequiresSession": true', '"RequiresSession": false'))
    with pytest.raises(AssertionError, match="q: the data folder holds it with another requires_session"):
        declared.start()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "Config.json"),
        ("{}", "UserConfig"),
        (config(queues=[{"Properties": {}}]), "Name"),
        (config(queues=[{"Name": "q", "Properties": {"LockDuration": "soon"}}]), "q: LockDuration: 'soon'"),
        (
            config(queues=[{"Name": "q", "Properties": {"ForwardTo": "x", "RequiresSession": True}}]),
            "ForwardTo cannot be set",
        ),
        (
            config(queues=[{"Name": "q", "Properties": {"Color": "red"}}]),
            "the property Color is not supported",
        ),
        (config(queues=[{"Name": "q"}, {"Name": "Q"}]), "Q"),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line_that_names_it(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "Config.json"
    file.write_text(text)
    folder = tmp_path / "data"
    service = Service("servicebus", folder, "--config", str(file))

    with pytest.raises(AssertionError) as failure:
        service.start()

    line = service.log.read_text().strip()
    assert complaint in line
    assert "\n" not in line
    assert "did not become ready" in str(failure.value)


def test_a_configuration_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    service = Service("servicebus", folder, "--config", str(tmp_path / "none.json"))
    with pytest.raises(AssertionError, match=r"none.json: .*SERVICEBUS_CONFIG"):
        service.start()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT1M", 60_000), ("P1DT2H3M4.5S", 93_784_500), ("PT0.25S", 250), ("P7D", 604_800_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert read_duration(text) == milliseconds
    assert read_duration(write_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1M", "PT1X", "P1Y"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        read_duration(text)

"""A right deployment, or one with a test's change, and the lines that preflight prints about it."""

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cli.preflight import main
from devstack.administration import administration_client
from devstack.testing import Service

SORTED_BY = ("name", "email", "company", "city", "country", "created", "changed")
SUBSCRIPTION = "contact-directory"


def indexed(*paths: str) -> dict[str, Any]:
    """A policy that indexes these paths and nothing else."""
    return {
        "indexingMode": "consistent",
        "includedPaths": [{"path": path} for path in paths],
        "excludedPaths": [{"path": "/*"}],
    }


def sorted_by(*names: str) -> dict[str, Any]:
    """A policy under which entries can be listed by each of these search keys."""
    return {
        "indexingMode": "consistent",
        "includedPaths": [{"path": "/*"}],
        "compositeIndexes": [
            [{"path": path, "order": "ascending"} for path in (f"/search/{name}", "/id")] for name in names
        ],
    }


LISTED = indexed("/type/?", "/data/deleted/?", "/data/createdAt/?", "/data/email/?") | {
    "compositeIndexes": [
        [{"path": path, "order": "ascending"} for path in ("/type", by, "/id")]
        for by in ("/data/createdAt", "/_ts")
    ]
}
"""By which contacts are listed."""


@dataclass(frozen=True)
class ContainerOf:
    """A container that a test deploys."""

    partition_key: str = "/partitionKey"
    default_ttl: int | None = -1
    indexing: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Deployment:
    """What a test deploys; None leaves something out. The defaults are right."""

    contacts: ContainerOf | None = ContainerOf(indexing=LISTED)
    leases: ContainerOf | None = ContainerOf("/id", indexing=indexed())
    parked: ContainerOf | None = ContainerOf(
        indexing=indexed("/type/?", "/aggregateType/?", "/aggregateId/?", "/position/?", "/parkedAt/?")
    )
    directory: ContainerOf | None = ContainerOf(
        indexing=indexed("/deleted/?", *(f"/search/{name}/?" for name in (*SORTED_BY, "lastName")))
        | {"compositeIndexes": sorted_by(*SORTED_BY)["compositeIndexes"]}
    )
    set_aside: ContainerOf | None = ContainerOf(
        indexing=indexed("/state/?", "/setAsideAt/?", "/triedAt/?", "/aggregateType/?", "/aggregateId/?")
    )
    claims: ContainerOf | None = ContainerOf(indexing=indexed())
    topic: Mapping[str, Any] | None = field(default_factory=dict)
    """On top of what is right."""
    subscription: Mapping[str, Any] | None = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """On top of those that lead to it."""


async def deployed(deployment: Deployment, cosmos: Service, servicebus: Service) -> dict[str, str]:
    """Make it; the settings that name it."""
    suffix = uuid.uuid4().hex[:12]
    database, topic = f"db-{suffix}", f"topic-{suffix}"
    await _containers(deployment, cosmos, database)
    await _entities(deployment, servicebus, topic)
    return {
        "COSMOS": cosmos.connection_string,
        "COSMOS_DATABASE": database,
        "COSMOS_CONTAINER": "contacts",
        "COSMOS_LEASE_CONTAINER": "leases",
        "SERVICEBUS": servicebus.connection_string,
        "SERVICEBUS_ADMIN_PORT": servicebus.addresses[1].rpartition(":")[2],
        "SERVICEBUS_TOPIC": topic,
        "SERVICEBUS_SUBSCRIPTION": SUBSCRIPTION,
    } | dict(deployment.settings)


async def _containers(deployment: Deployment, cosmos: Service, name: str) -> None:
    wanted = {
        "contacts": deployment.contacts,
        "leases": deployment.leases,
        "parked-events": deployment.parked,
        "directory": deployment.directory,
        "set-aside": deployment.set_aside,
        "claims": deployment.claims,
    }
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        database = await client.create_database(name)
        for container, properties in wanted.items():
            if properties is not None:
                await database.create_container(
                    container,
                    PartitionKey(properties.partition_key),
                    default_ttl=properties.default_ttl,
                    indexing_policy=dict(properties.indexing) if properties.indexing else None,
                )


async def _entities(deployment: Deployment, servicebus: Service, topic: str) -> None:
    if deployment.topic is None:
        return
    right_topic: dict[str, Any] = {
        "requires_duplicate_detection": True,
        "duplicate_detection_history_time_window": timedelta(hours=1),
    }
    right_subscription: dict[str, Any] = {
        "requires_session": True,
        "max_delivery_count": 2000,
        "dead_lettering_on_message_expiration": True,
    }
    async with administration_client(servicebus.admin_connection_string) as admin:
        await admin.create_topic(topic, **right_topic | dict(deployment.topic))
        if deployment.subscription is not None:
            await admin.create_subscription(
                topic, SUBSCRIPTION, **right_subscription | dict(deployment.subscription)
            )


async def preflight(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[str]]:
    """The exit code, and the lines that are not "ok"."""
    code = await asyncio.to_thread(main, list(arguments), environment)
    *lines, total = capsys.readouterr().out.splitlines()
    complaints = [line for line in lines if not line.startswith("ok ")]
    assert total.startswith(f"{len(lines) - len(complaints)} ok")
    return code, complaints

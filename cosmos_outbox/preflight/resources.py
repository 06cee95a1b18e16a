"""Derives what has to be made for a service from its declaration: containers with indexes, topics, subscriptions.

The form is that of ``devstack.toml``; Bicep reads the same from the file that ``cosmos-outbox resources`` writes.
"""

import re
from collections.abc import Mapping
from typing import Any

from cosmos_outbox.preflight.plan import Needed, Plan, plan_for
from cosmos_outbox.service import Service
from cosmos_outbox.settings.transports import ServiceBus, StorageQueue

_CONNECTED = {"COSMOS": "-", "SERVICEBUS": "-", "STORAGEQUEUE": "-"}
_CONNECTION = re.compile(
    r"(\w*connstr_|AzureWebJobs|ConnectionStrings(__|:))?(COSMOS|SERVICEBUS|STORAGEQUEUE)((__|:).*)?",
    re.IGNORECASE,
)
"""A setting of a connection, on which no name depends: so any will do in their place."""

_RECEIVED = {
    "requires_session": True, "lock_duration": "PT1M", "max_delivery_count": 2000,
    "dead_lettering_on_message_expiration": True,
}  # fmt: skip
"""Of a subscription. A low number of deliveries would dead-letter messages in an outage of the store."""
_SENT = {"requires_duplicate_detection": True, "duplicate_detection_history_time_window": "PT10M"}
"""Of a topic. Standard's emulator allows no longer window; a deployment has one of its own."""


def resources(service: Service, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the service needs, under the names that its declaration or a setting gives. Raises Misconfigured."""
    named = {name: value for name, value in environment.items() if value and not _CONNECTION.fullmatch(name)}
    plan = plan_for(service, _CONNECTED | named)
    cosmos, own = plan.cosmos, plan.settings.transport.destination
    return {
        "settings": _settings(plan, environment),
        "subscriptions": [name for topic, name in plan.subscriptions if topic == own],
        "cosmos": {
            "containers": [_container(cosmos.database, each) for each in cosmos.needed] if cosmos else []
        },
        **_entities(plan),
    }


def _settings(plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    names = plan.service.names
    stored = names.resolve(environment) if plan.service.publishes else {}
    topic = environment.get(names.topic_named.setting) or names.topic or ""
    return {
        **{names.all[field].setting: value for field, value in stored.items()},
        names.topic_named.setting: topic,
        **plan.settings.named,
    }


def _container(database: str, need: Needed) -> dict[str, Any]:
    own = need.own
    return {
        "database": database,
        "name": need.name,
        "setting": need.setting,
        "partition_key": [*need.paths.paths],
        # -1: an item lives for ever unless it says otherwise. Of leases it is the lock of who died while making them.
        "ttl": own.default_ttl if own else -1,
        "indexes": ["/*"] if own else [f"{path}/?" for path in need.queried],
        "composite_indexes": [[*each] for each in need.composite],
    }


def _entities(plan: Plan) -> dict[str, Any]:
    transport = plan.settings.transport
    if isinstance(transport, StorageQueue):
        return {"storage": {"connection": "STORAGEQUEUE", "queues": [*transport.queues]}}
    if not isinstance(transport, ServiceBus):
        return {}
    topics: dict[str, list[str]] = {transport.topic: []}
    for topic, subscription in plan.subscriptions:
        topics.setdefault(topic, []).append(subscription)
    queues = [{"name": transport.topic, **_SENT, **_RECEIVED}] if transport.is_queue else []
    if transport.is_queue:
        del topics[transport.topic]
    made = [
        {
            "name": topic,
            **_SENT,
            "enable_partitioning": transport.partitioned,
            "subscriptions": [{"name": each, **_RECEIVED} for each in subscriptions],
        }
        for topic, subscriptions in topics.items()
    ]
    return {"servicebus": {"topics": made, "queues": queues}}

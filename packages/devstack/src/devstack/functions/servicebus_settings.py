"""A Service Bus trigger that names no entity, or a setting that is not there, stops before it has received anything."""

from dataclasses import dataclass

from devstack.connection_settings import Connection
from devstack.functions.connections import servicebus_connection
from devstack.functions.indexing import FunctionInfo
from devstack.functions.settings import resolve
from devstack.service import CannotStart


@dataclass(frozen=True)
class ServiceBusTriggerSettings:
    """The decorator's parameters, with the settings they name filled in."""

    connection: Connection
    queue: str
    topic: str
    subscription: str
    sessions: bool
    many: bool
    binary: bool

    @property
    def entity(self) -> str:
        return self.queue or f"{self.topic}/{self.subscription}"

    @classmethod
    def read(cls, function: FunctionInfo) -> "ServiceBusTriggerSettings":
        """Raises CannotStart for a parameter that cannot be used."""
        where = f"the Service Bus trigger of {function.name}"

        def text(name: str) -> str:
            return resolve(str(function.trigger.get(name) or ""), where=where)

        settings = cls(
            connection=servicebus_connection(text("connection") or "ServiceBus", where=where),
            queue=text("queueName"),
            topic=text("topicName"),
            subscription=text("subscriptionName"),
            sessions=bool(function.trigger.get("isSessionsEnabled")),
            many=str(function.trigger.get("cardinality") or "one").lower() == "many",
            binary=str(function.trigger.get("dataType") or "").lower() == "binary",
        )
        if not settings.queue and not (settings.topic and settings.subscription):
            raise CannotStart(f"functions: {where} names no queue, or no topic and subscription; name them")
        return settings

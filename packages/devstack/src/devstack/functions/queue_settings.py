"""A queue trigger that names no queue, or a setting that is not there, stops before it has received anything."""

import os
from dataclasses import dataclass

from devstack.connection_settings import Connection, find_connection
from devstack.functions.connections import STORAGE_CONNECTION
from devstack.functions.indexing import FunctionInfo
from devstack.functions.settings import resolve
from devstack.service import CannotStart

QUEUES_ADDRESS = "queueServiceUri"
_OF_OTHER_SERVICES = ("__blobserviceuri", "__tableserviceuri")
"""The host's own storage is one connection for three services, which its triggers read alike."""


@dataclass(frozen=True)
class QueueTriggerSettings:
    """The decorator's parameters, with the settings they name filled in."""

    connection: Connection
    queue: str
    binary: bool

    @classmethod
    def read(cls, function: FunctionInfo) -> "QueueTriggerSettings":
        """Raises CannotStart for a parameter that cannot be used."""
        where = f"the queue trigger of {function.name}"

        def text(name: str) -> str:
            return resolve(str(function.trigger.get(name) or ""), where=where)

        queue = text("queueName")
        if not queue:
            raise CannotStart(f"functions: {where} names no queue; name it")
        return cls(
            connection=_connection(text("connection") or STORAGE_CONNECTION, where),
            queue=queue.lower(),  # as the extension does: a queue's name has no capital letters
            binary=str(function.trigger.get("dataType") or "").lower() == "binary",
        )


def _connection(setting: str, where: str) -> Connection:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.replace(":", "__").lower().endswith(_OF_OTHER_SERVICES)
    }
    try:
        connection = find_connection(environment, setting, QUEUES_ADDRESS)
    except CannotStart as refused:
        raise CannotStart(f"functions: {where} uses the connection {setting}; {refused}") from refused
    if connection is None:
        raise CannotStart(
            f"functions: {where} uses the connection {setting}; "
            f"set {setting} or {setting}__{QUEUES_ADDRESS} in the settings"
        )
    return connection

"""Two services never share a port, and a taken port is found before the first process starts."""

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from devstack.service import CannotStart, port_errors


@dataclass(frozen=True)
class Ports:
    """Where the services listen on 127.0.0.1; 0 is any free port."""

    functions: int = 7071
    web: int = 7072
    cosmos: int = 8081
    servicebus: int = 5672
    servicebus_admin: int = 5300
    blobs: int = 10000
    queues: int = 10001


SETTINGS = {
    "functions": "FUNCTIONS_PORT",
    "web": "WEB_PORT",
    "cosmos": "COSMOS_PORT",
    "servicebus": "SERVICEBUS_PORT",
    "servicebus_admin": "SERVICEBUS_ADMIN_PORT",
    "blobs": "AZURITE_BLOB_PORT",
    "queues": "AZURITE_QUEUE_PORT",
}
"""The environment variable of each port."""


def read_ports(environment: Mapping[str, str]) -> Ports:
    """The ports the environment asks for, the defaults for the rest. Raises :class:`CannotStart`."""
    defaults = Ports()
    return Ports(
        **{
            name: _port(setting, environment.get(setting) or str(getattr(defaults, name)))
            for name, setting in SETTINGS.items()
        }
    )


def check_ports(wanted: Mapping[str, int]) -> None:
    """Bind each port once, under its service's name in :class:`Ports`, and let it go again.

    Raises :class:`CannotStart` when two are the same, or when something else listens there.
    """
    named: dict[int, str] = {}
    for name, port in wanted.items():
        if port and port in named:
            raise CannotStart(
                f"{SETTINGS[named[port]]} and {SETTINGS[name]} are both {port}; give one another port"
            )
        named[port] = name
    with contextlib.ExitStack() as held:
        for name, port in wanted.items():
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            # As a server does: a port whose last connections have not timed out yet is free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with port_errors(name, port, SETTINGS[name]):
                listener.bind(("127.0.0.1", port))
                listener.listen()


def _port(setting: str, text: str) -> int:
    if text.isascii() and text.isdigit() and int(text[:6]) <= 65535:
        return int(text)
    raise CannotStart(
        f'{setting} is "{text[:40]}"; set it to a port from 1 to 65535, or to 0 for any free one'
    )

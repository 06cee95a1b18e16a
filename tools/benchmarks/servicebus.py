"""Measures devstack's Service Bus: sends and session receives in a second, and the server's share of a core.

The SDK runs in this process, the server in another; the prebuilt batches come from a raw client that needs hardly any
processor time. ``python -m tools.benchmarks.servicebus [--scale N]``
"""

from tools.required import require

if __name__ == "__main__":
    require("benchmark")

import argparse
import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from devstack.administration import administration_client
from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_outcome
from devstack.servicebus.codec.message import BATCH_FORMAT
from devstack.testing import Service, running
from devstack.testing.amqp import batch, raw_client
from tools.benchmarks.cosmos import client_cpu, memory_mb, server_cpu

CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "emulators" / "Config.json"
TOPIC, SUBSCRIPTION = "contact-events", "contact-directory"
BODY = (
    b'{"id": "...", "action": "ContactNameUpdatedEvent", "name": {"firstName": "Jane", "lastName": "Doe"}}'
    * 2
)
SESSIONS = 50
BATCH = 100
WINDOW = 20
"""The number of prebuilt batches sent at once."""


@dataclass(frozen=True)
class Measured:
    name: str
    messages: int
    seconds: float
    client: float
    server: float

    def __str__(self) -> str:
        return (
            f"{self.name:<34}{self.messages / self.seconds:>8.0f}/s"
            f"   client {self.client / self.seconds:>4.0%} of a core   server {self.server / self.seconds:>4.0%}"
            f"   server alone {self.messages / max(self.server, 0.01):>8.0f}/s"
        )


async def measure(name: str, pid: int, messages: int, work: Callable[[], Awaitable[object]]) -> Measured:
    began, spent, served = time.perf_counter(), client_cpu(), server_cpu(pid)
    await work()
    return Measured(
        name, messages, time.perf_counter() - began, client_cpu() - spent, server_cpu(pid) - served
    )


def message(number: int, sessions: int = SESSIONS) -> ServiceBusMessage:
    """Returns a message like those of the relay."""
    return ServiceBusMessage(
        BODY,
        message_id=str(uuid.uuid4()),
        session_id=f"session-{number // BATCH % sessions}",
        subject="ContactNameUpdatedEvent",
        content_type="application/json",
        application_properties={"cloudEvents:type": "ContactNameUpdatedEvent", "sequence": number},
    )


async def send_singles(sender: ServiceBusSender, count: int) -> None:
    for number in range(count):
        await sender.send_messages(message(number))


async def send_batches(sender: ServiceBusSender, count: int, sessions: int = SESSIONS) -> None:
    for start in range(0, count, BATCH):
        await sender.send_messages([message(start + offset, sessions) for offset in range(BATCH)])


async def send_from_clients(service: Service, clients: int, count: int) -> None:
    async def one() -> None:
        async with (
            ServiceBusClient.from_connection_string(service.connection_string) as sdk,
            sdk.get_topic_sender(TOPIC) as sender,
        ):
            await send_batches(sender, count // clients)

    await asyncio.gather(*(one() for _ in range(clients)))


async def receive_sessions(sdk: ServiceBusClient, count: int, *, deletes: bool) -> None:
    """Empties one session after the other."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE if deletes else ServiceBusReceiveMode.PEEK_LOCK
    received = 0
    while received < count:
        try:
            receiver = sdk.get_subscription_receiver(
                TOPIC,
                SUBSCRIPTION,
                session_id=NEXT_AVAILABLE_SESSION,
                max_wait_time=1,
                receive_mode=mode,
                prefetch_count=BATCH,
            )
            async with receiver:
                while messages := await receiver.receive_messages(BATCH, max_wait_time=0.3):
                    received += len(messages)
                    if not deletes:
                        for message_ in messages:
                            await receiver.complete_message(message_)
        except OperationTimeoutError:
            break
    assert received == count, f"{received} of {count} messages came"


def prebuilt(count: int) -> list[bytes]:
    """Returns batches that are encoded before the measurement begins."""
    batches = []
    for start in range(0, count, BATCH):
        session = e.string(f"session-{start // BATCH % SESSIONS}")
        subject, kind = e.string("ContactNameUpdatedEvent"), e.symbol("application/json")
        raws = []
        for number in range(start, start + BATCH):
            fields = [b"\x40"] * 11
            fields[0], fields[3], fields[6], fields[10] = e.string(str(uuid.uuid4())), subject, kind, session
            properties = e.described(0x73, e.encode_list(fields))
            application = e.described(0x74, e.encode({"type": "ContactNameUpdatedEvent", "sequence": number}))
            raws.append(properties + application + e.described(0x75, e.binary(BODY)))
        batches.append(batch(*raws))
    return batches


async def send_prebuilt(service: Service, batches: list[bytes]) -> None:
    async with raw_client(service.port) as raw:
        handle = await raw.attach_sender(TOPIC)
        answered = sent = 0
        while answered < len(batches):
            while sent < len(batches) and sent - answered < WINDOW:
                raw.transfer(handle, batches[sent], message_format=BATCH_FORMAT)
                sent += 1
            disposition = await raw.expect(p.Disposition)
            assert read_outcome(disposition.state) == p.Accepted()
            answered += 1


async def empty(sdk: ServiceBusClient, service: Service) -> None:
    async with administration_client(service.admin_connection_string) as admin:
        counts = await admin.get_subscription_runtime_properties(TOPIC, SUBSCRIPTION)
    await receive_sessions(sdk, counts.active_message_count or 0, deletes=True)


async def run(service: Service, scale: int) -> None:
    pid = service.pid
    async with (
        ServiceBusClient.from_connection_string(service.connection_string) as sdk,
        sdk.get_topic_sender(TOPIC) as sender,
    ):
        print(await measure("SDK, one by one", pid, 500 * scale, lambda: send_singles(sender, 500 * scale)))
        print(
            await measure(
                "SDK, batches of 100", pid, 10_000 * scale, lambda: send_batches(sender, 10_000 * scale)
            )
        )
        print(
            await measure(
                "SDK, 4 clients, batches of 100",
                pid,
                10_000 * scale,
                lambda: send_from_clients(service, 4, 10_000 * scale),
            )
        )
        await empty(sdk, service)
        batches = prebuilt(20_000 * scale)
        print(
            await measure(
                "prebuilt batches of 100", pid, 20_000 * scale, lambda: send_prebuilt(service, batches)
            )
        )
        await empty(sdk, service)
        held = memory_mb(pid, "VmRSS")
        # Two sessions only: the SDK takes half a second to open a link to any server.
        await send_batches(sender, 2_000 * scale, sessions=2)
        print(
            await measure(
                "SDK, sessions, receive + complete",
                pid,
                2_000 * scale,
                lambda: receive_sessions(sdk, 2_000 * scale, deletes=False),
            )
        )
        after = memory_mb(pid, "VmRSS")
        print(f"server memory when empty: {held:.0f} MB, after more was sent and completed: {after:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of devstack's Service Bus.")
    parser.add_argument(
        "--scale",
        type=int,
        default=2,
        help="size of the run, as a multiple of the smallest (default %(default)s)",
    )
    scale = parser.parse_args().scale
    print(f"{os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with running(Service("servicebus", data, f"--config={CONFIG}")) as service:
            asyncio.run(run(service, scale))


if __name__ == "__main__":
    main()

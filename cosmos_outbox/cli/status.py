"""Prints how a service is, read from its store whether anything of it runs or not: in words, with what to do.

cosmos-outbox status [--json]
"""

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from cosmos_outbox.cli import command
from cosmos_outbox.cli.command import ATTENTION, DONE, say, say_json
from cosmos_outbox.operations.relay_status import LATE_SECONDS, SHARE, LeaseState
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.connections import credential_for
from cosmos_outbox.settings.errors import CannotCheck, Denied
from cosmos_outbox.settings.transports import ServiceBus, StorageQueue

ASK_SECONDS = 15.0
"""How long the broker is asked."""


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Say how the service is, and return the exit code."""
    parser = command.parser(
        "status",
        "Say how the relay and the subscribers of a service are, and what to do about what is not well.",
        "all is well",
        "something wants attention",
    )
    command.add_json(parser)
    return command.run(parser, _print, argv, environment)


async def _print(wired: Wired, arguments: Namespace) -> int:
    view = await status(wired)
    if arguments.json:
        say_json(view)
    else:
        for line in in_lines(view, wired.settings.event_ttl_seconds):
            say(line)
    return ATTENTION if view["attention"] else DONE


async def status(wired: Wired) -> Mapping[str, Any]:
    """The service, its relay and its subscribers, as the calls over HTTP show each; ``attention``: what is not well.

    One that only subscribes has no relay. Raises Unavailable, Throttled, Misconfigured, StoreUnavailable.
    """
    in_broker = await waiting_in_broker(wired)
    subscribers = [
        {
            **await each.view(name),
            "inBroker": in_broker if isinstance(in_broker, str) else in_broker.get(name),
        }
        for name, each in wired.subscriptions.items()
    ]
    attention = [*_of_subscribers(subscribers)]
    if not wired.service.publishes:
        return {"service": wired.service.name, "attention": attention, "subscribers": subscribers}
    relay = (await wired.operator.observer.status()).view()
    return {
        "service": wired.service.name,
        "attention": [*attention_of_relay(relay), *attention],
        "relay": relay,
        "subscribers": subscribers,
    }


async def waiting_in_broker(wired: Wired) -> Mapping[str, int | None] | str:
    """The messages that wait in the broker, by subscriber (None: no such queue); a text: why they are not counted."""
    of, found = wired.settings.transport, dict[str, int | None]()
    subscribers = {name: each.subscriber for name, each in wired.subscriptions.items()}
    try:
        async with AsyncExitStack() as stack:
            if isinstance(of, ServiceBus):
                from cosmos_outbox.servicebus.inspection import ServiceBusInspection  # noqa: PLC0415

                if credential := credential_for(of.connection):
                    stack.push_async_callback(credential.close)
                port = command.emulator_port(wired.environment)
                asked = await stack.enter_async_context(
                    ServiceBusInspection(of.connection, credential, emulator_port=port)
                )
                for name, each in subscribers.items():
                    is_queue = of.is_queue and each.topic == of.destination
                    found[name] = await asked.waiting(each.topic, each.subscription, is_queue=is_queue)
            elif isinstance(of, StorageQueue):
                from cosmos_outbox.storagequeue.client import messages_in  # noqa: PLC0415

                if credential := credential_for(of.connection):
                    stack.push_async_callback(credential.close)
                for name, each in subscribers.items():
                    found[name] = await messages_in(
                        of.connection, credential, each.subscription, seconds=ASK_SECONDS
                    )
    except Denied:
        role = "Azure Service Bus Data Owner" if isinstance(of, ServiceBus) else "Storage Queue Data Reader"
        return f"this sign-in may not count: give it the role {role}"
    except CannotCheck as error:
        return str(error)
    return found


def attention_of_relay(view: Mapping[str, Any]) -> Iterator[str]:
    """Describes what is wrong with a relay of this status, and what to do."""
    if view["missingLeases"]:
        yield (
            f"the relay has no lease for partition(s) {', '.join(view['missingLeases'])}: nothing of them is "
            "forwarded. Start the relay (the function app, or cosmos-outbox relay); it makes a deleted lease again"
        )
    used = max((lease["ttlUsed"] for lease in view["leases"]), default=0.0)
    oldest = max((lease["oldestWaitingSeconds"] or 0 for lease in view["leases"]), default=0)
    if used >= SHARE:
        yield (
            f"events are at risk: one has waited for {used:.0%} of its lifetime, and at 100% it is lost. Stop the "
            "expiry (docs/operate/emergency-brake.md), then find out why the relay does not run or is refused: its "
            "log says it"
        )
    elif oldest > LATE_SECONDS:
        yield (
            f"the relay is late: a change has waited for {in_words(oldest)}, {used:.0%} of an event's lifetime. "
            "Nothing is lost yet. Find out why the relay does not run or is refused: its log says it"
        )
    for failure in view["failures"]:
        yield (
            f"while a change waits the relay failed ({failure['reason']}, last at {failure['at']}): "
            f"{failure['detail']}"
        )
    if events := view["parkedEvents"]:
        parked = view["parkedAggregates"]
        of = ", ".join(f"{count} {kind}" for kind, count in parked.items()) or "no aggregate"
        yield (
            f"{events} event(s) are parked, of {of}: they are not sent before somebody mends or discards what is in "
            "their way. cosmos-outbox stuck lists them"
        )


def _of_subscribers(subscribers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for view in subscribers:
        counts = {state: count for state, count in view["setAside"].items() if count}
        if counts:
            of = ", ".join(f"{count} {state}" for state, count in counts.items())
            yield f"{view['name']} has set messages aside ({of}): cosmos-outbox stuck lists them"


def in_lines(view: Mapping[str, Any], event_ttl_seconds: int) -> Iterator[str]:
    """A status for people: what wants attention comes first."""
    attention = view["attention"]
    in_broker = [each["inBroker"] for each in view["subscribers"]]
    waiting = sum(each for each in in_broker if isinstance(each, int))
    unread = any(isinstance(each, str) for each in in_broker)
    well = "nothing is wrong, but for the broker, which was not read" if unread else "all is well"
    if waiting:
        well = f"nothing is wrong; {waiting} message(s) wait in the broker"
    yield f"{view['service']}: " + (f"{len(attention)} thing(s) want attention" if attention else well)
    yield from (f"- {each}" for each in attention)
    if "relay" in view:
        leases = view["relay"]["leases"]
        yield from (f"relay: {_lease(lease, event_ttl_seconds)}" for lease in leases)
    for each in view["subscribers"]:
        open_records = sum(each["setAside"].values())
        walk = each["lastWalk"]
        of_walk = f"; last walk {walk['endedAt']}, healed {walk['healed']}" if walk else ""
        yield f"{each['name']}: {_in_broker(each['inBroker'])}, {open_records} set aside{of_walk}"


def _in_broker(waiting: int | str | None) -> str:
    if waiting is None:
        return "no subscription in the broker"
    return (
        f"{waiting} message(s) in the broker" if isinstance(waiting, int) else f"broker not read ({waiting})"
    )


def _lease(lease: Mapping[str, Any], event_ttl_seconds: int) -> str:
    silent = " (which does not renew it)" if lease["state"] == LeaseState.BY_SILENT else ""
    where = f"lease {lease['lease']} of {lease['owner'] or 'nobody'}{silent}"
    waiting = lease["oldestWaitingSeconds"]
    if waiting is None:
        return f"{where}: nothing waits"
    return (
        f"{where}: {lease['lag']} transaction(s) wait, the oldest for {in_words(waiting)} of the "
        f"{in_words(event_ttl_seconds)} that an event lives"
    )


def in_words(seconds: float) -> str:
    """A time for people."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"

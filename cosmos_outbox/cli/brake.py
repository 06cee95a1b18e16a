"""The emergency brake: nothing expires while the relay is away. It is released only when no event would be lost by it.

    cosmos-outbox brake status|stop|resume

Exit code 0: done, or for ``status`` as it should be; 1: it is not safe to resume, or the brake is on; 2: it could not
be done, or a setting is missing.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

from cosmos_outbox.cli import told
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.settings.errors import InfraError
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.service import Service

DONE, NOT_NOW, FAILED = 0, 1, 2


async def status(outbox: Outbox) -> int:
    """Say whether documents expire, and whether it is safe that they do."""
    stopped = await outbox.expiry.is_stopped()
    _say("nothing expires: the container's TTL is off" if stopped else "documents expire: the TTL is on")
    unsafe = await _unsafe(outbox)
    if stopped:
        _say(f"{await outbox.expiry.overdue()} document(s) would expire at once")
        _say(unsafe or "no event would be lost: it is safe to resume")
    elif unsafe:
        _say(f"{unsafe}; stop the expiry, or events may be lost")
    return NOT_NOW if stopped or unsafe else DONE


async def stop(outbox: Outbox) -> int:
    """Stop the expiry. A second call changes nothing."""
    await outbox.expiry.stop()
    _say("stopped: nothing in the container expires. Do not deploy the container until you resume")
    return DONE


async def resume(outbox: Outbox) -> int:
    """Resume the expiry, when no event would be lost by it."""
    if unsafe := await _unsafe(outbox):
        _say(f"not resumed: {unsafe}")
        return NOT_NOW
    overdue = await outbox.expiry.overdue()
    await outbox.expiry.resume()
    _say(f"resumed: {overdue} document(s) were overdue and expire now")
    return DONE


async def _unsafe(outbox: Outbox) -> str | None:
    """Why events could be lost by expiring; None: every event that waits has half of its TTL left, or more."""
    reader = await outbox.status()
    if reader.missing:
        return "the relay has no lease for a part of the container, so what waits there is not known"
    if reader.events_at_risk:
        oldest = max(reader.leases, key=lambda lease: lease.oldest_waiting_seconds or 0)
        to = f" to {oldest.destination}" if oldest.destination else ""
        return f"events wait for the relay{to}, the oldest for {oldest.oldest_waiting_seconds} s"
    return None


COMMANDS: Mapping[str, Callable[[Outbox], Awaitable[int]]] = {
    "status": status,
    "stop": stop,
    "resume": resume,
}


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Do it, and return the exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(logging.CRITICAL)  # the last line tells a failure once
    try:
        service = told.service(arguments, environment)
        return asyncio.run(_run_wired(service, COMMANDS[arguments.command], environment))
    except (InfraError, OutboxError) as error:
        print(f"brake: {error}", file=sys.stderr)
        return FAILED


async def _run_wired(
    service: Service, command: Callable[[Outbox], Awaitable[int]], environment: Mapping[str, str]
) -> int:
    outbox = service.wire(environment).outbox
    async with outbox.resources:
        return await command(outbox)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cosmos-outbox brake",
        description="Stop the expiry of events while the relay is away, and resume it when no event would be lost.",
        epilog="Exit code 0: done, or all is well, 1: not safe, or stopped, 2: it could not be done.",
    )
    parser.add_argument("command", choices=sorted(COMMANDS))
    told.add_argument(parser)
    return parser


def _say(line: str) -> None:
    print(f"brake: {line}", flush=True)

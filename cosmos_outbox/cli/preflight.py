"""Checks the configured account and namespace before traffic does; each line says what is wrong and how to repair it.

cosmos-outbox preflight [--survive 1h] [--subscription NAME]... [--as-app]
"""

import argparse
import logging
import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from azure.identity.aio import DefaultAzureCredential

from cosmos_outbox.cli import command
from cosmos_outbox.preflight.checks import check
from cosmos_outbox.preflight.plan import Plan, plan_for
from cosmos_outbox.preflight.report import Finding, exit_code, summary
from cosmos_outbox.settings.errors import needed
from cosmos_outbox.settings.transports import OwnPublisher, Webhook

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_DIGITS = 7


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Check, print a line for each thing looked at, and return the exit code."""
    parser = command.parser(
        "preflight",
        "Check the Cosmos DB account and the Service Bus namespace that the settings name.",
        "all right",
        "something is wrong",
        "something could not be checked",
    )
    parser.add_argument(
        "--survive",
        type=_duration,
        default=timedelta(hours=1),
        metavar="TIME",
        help="the outage to survive, such as 30m, 1h or 2d (default 1h)",
    )
    parser.add_argument(
        "--subscription",
        action="append",
        default=[],
        metavar="NAME",
        help="check this subscription of the topic too; may be given several times",
    )
    parser.add_argument(
        "--as-app",
        action="store_true",
        help="run by the app's own identity: also try what the app does, without leaving a trace",
    )
    arguments = parser.parse_args(argv)
    command.log_to_stderr(logging.WARNING)
    return command.ended(parser, _report(arguments, environment))


async def _report(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    findings = await _check(_plan(arguments, environment))
    for finding in findings:
        command.say(str(finding))
    command.say(summary(findings))
    return exit_code(findings)


def _duration(text: str) -> timedelta:
    match = re.fullmatch(rf"([0-9]{{1,{_LONGEST_DIGITS}}})([smhd])", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write it like 90s, 30m, 1h or 2d")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def _plan(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Plan:
    service, values = command.named(arguments, environment)
    plan = plan_for(
        service,
        values,
        other_subscriptions=tuple(arguments.subscription),
        survive=arguments.survive,
        as_app=arguments.as_app,
        emulator_port=command.emulator_port(values),
    )
    needed(plan.settings.transport.name)
    return plan


async def _check(plan: Plan) -> list[Finding]:
    """The findings. Without a connection string the caller's own sign-in is used, whatever identity the app has."""
    transport = plan.settings.transport
    connections = [] if isinstance(transport, Webhook | OwnPublisher) else [transport.connection]
    if plan.cosmos:
        connections.append(plan.cosmos.connection)
    if all(each.connection_string for each in connections):
        return await check(plan, None)
    async with DefaultAzureCredential() as credential:
        return await check(plan, credential)

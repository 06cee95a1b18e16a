"""Each name of the kit has a docstring, and is in an example that runs."""

import asyncio
import inspect
import re
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cosmos_outbox
import outbox_simulation
from cosmos_outbox import errors, testing
from devstack.testing.ended import run_module
from tests.support.paths import ROOT
from tests.testing import booking_calls, bookings
from tests.testing.test_memory_elsewhere import asked, asking

NEED_DEVSTACK = [
    "InMemory",
    "LocalAzure",
    "NotInMemory",
    "Program",
    "eventually",
    "in_memory",
]
KIT = {each: getattr(face, each) for face in (testing, outbox_simulation) for each in face.__all__}


def example(name: str) -> str | None:
    """What follows ``Example::`` in the docstring of a name."""
    _, found, code = (inspect.getdoc(KIT[name]) or "").partition("Example::\n")
    return textwrap.dedent(code) if found else None


EXAMPLES = {name: code for name in KIT if (code := example(name)) is not None}


def test_every_name_is_documented_and_is_in_an_example() -> None:
    used = set(re.findall(r"\w+", " ".join(EXAMPLES.values())))
    assert KIT.keys() <= used
    assert all(map(inspect.getdoc, KIT.values()))


# The examples' own tests simulate them.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if name in ("simulate", "Release") else name
        for name in EXAMPLES
    ],
)
async def test_an_example_runs(name: str, tmp_path: Path) -> None:
    bookings.answers.clear()
    there: dict[str, Any] = {each: getattr(cosmos_outbox, each) for each in cosmos_outbox.__all__}
    there |= vars(errors) | KIT
    there |= vars(bookings) | {
        "AsyncIterator": AsyncIterator, "Random": Random, "asyncio": asyncio, "pytest": pytest, "sys": sys,
        "tmp_path": tmp_path,
        "app": booking_calls.app, "subscriber": asking, "subscribed": asked,
        "SAYS_READY": "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
        "print('ready at http://127.0.0.1:1'); time.sleep(60)",
    }  # fmt: skip
    exec(compile(f"async def run():\n{textwrap.indent(EXAMPLES[name], '    ')}", name, "exec"), there)
    await there["run"]()


def test_without_devstack_one_line_says_what_to_install() -> None:
    done = run_module("tests.testing.without_devstack", folder=ROOT)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{name} a test of a service needs devstack: pip install 'cosmos-outbox[testing]'"
        for name in NEED_DEVSTACK
    ]

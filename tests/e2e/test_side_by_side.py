"""This version and a next one, with a property and an event more, work on the same data at once, and lose nothing."""

import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import Service, eventually
from tests.e2e.conftest import stack
from tests.support.contacts import DETAILS_JSON
from tests.support.paths import ROOT

APP = ("application", "cosmos_changefeed", "cosmos_outbox", "domain", "infra")
FILES = ("function_app.py", "host.json", "local.settings.sample.json", "devstack.toml")

EVENT = """class ContactNicknameUpdatedEvent(ContactEvent):
    action: Literal["ContactNicknameUpdatedEvent"] = "ContactNicknameUpdatedEvent"
    nickname: str | None


"""
NEXT = [
    ("domain/values.py", "    company: Company | None = None\n", "    nickname: Description | None = None\n"),
    ("domain/events.py", "class ContactDeletedEvent(ContactEvent):\n", EVENT),
    ("domain/contact.py", "    ContactNameUpdatedEvent,\n", "    ContactNicknameUpdatedEvent,\n"),
    (
        "domain/contact.py",
        '        "deleted": ContactDeletedEvent,\n',
        '        "nickname": ContactNicknameUpdatedEvent,\n',
    ),
    (
        "domain/contact.py",
        "        self.change_email(details.email, at=at)\n",
        '        self._change("nickname", details.nickname, at)\n',
    ),
]
"""What the next version has more: in which file, before which line. So CONTRIBUTING.md says to add a property."""


def next_version(folder: Path) -> Path:
    """The app in this folder, with a nickname."""
    folder.mkdir()
    for name in APP:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    for name, line, more in NEXT:
        text = (folder / name).read_text()
        assert text.count(line) == 1, f"{name} has changed: correct NEXT in this test"
        (folder / name).write_text(text.replace(line, more + line))
    return folder


async def call(
    http: aiohttp.ClientSession, host: Service, method: str, path: str, **json: Any
) -> dict[str, Any]:
    url = f"{host.address.rstrip('/')}/api/{path}"
    async with http.request(method, url, json=json or None) as answer:
        assert answer.status in (200, 201), await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


@pytest.mark.long
@pytest.mark.own_stack
async def test_two_versions_share_contacts_leases_and_messages(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    new_app = next_version(tmp_path / "next")
    with stack(tmp_path / "stack", PYTHONPATH="") as started:
        old = started.functions
        new = started.run_another(new_app, "next")

        made = await call(http, new, "POST", "contacts", **DETAILS_JSON, nickname="Jo")
        assert made["nickname"] == "Jo"
        path = f"contacts/{made['id']}"
        assert "nickname" not in await call(http, old, "GET", path)

        # The old version changes what it knows, and keeps what it does not know.
        await call(http, old, "PATCH", path, description="by the old version")
        assert (await call(http, new, "GET", path))["nickname"] == "Jo"

        # Whichever relays and subscribes: an event that the old version does not know arrives in its place.
        await call(http, new, "PATCH", path, nickname="Joe")
        await call(http, old, "PATCH", path, email="old@contoso.com")
        assert await started.sequences(made["id"], 4) == [1, 2, 3, 4]

        # The old one stops, as in an upgrade; then the new one does, as on the way back.
        assert old.terminate() == 0
        await call(http, new, "PATCH", path, nickname="Jonny")
        assert await started.sequences(made["id"], 1) == [5]
        assert new.terminate() == 0
        old.start()
        await call(http, old, "PATCH", path, description="back again")
        assert await started.sequences(made["id"], 1) == [6]

        async def followed() -> bool:
            found = await call(http, old, "GET", "directory?email=old@contoso.com")
            return [each["sequence"] for each in found["items"]] == [6]

        await eventually(followed)
        new.start()
        assert (await call(http, new, "GET", path))["nickname"] == "Jonny"

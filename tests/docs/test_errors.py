"""docs/internals/errors.md shows every error that the app raises on purpose, with the status that callers get."""

import importlib
import inspect
import re

import pytest

from tests.support.contacts_http import answering
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "internals" / "errors.md").read_text()
MODULES = [
    "domain.errors", "cosmos_outbox.outbox.errors", "cosmos_outbox.inbox.errors",
    "cosmos_outbox.settings.errors", "cosmos_outbox.settings.errors", "cosmos_outbox.http.problems",
    "cosmos_changefeed.errors",
]  # fmt: skip
SHOWN = dict(re.findall(r"^ [ │├└─]*([A-Z]\w+) .*?(\d{3})?$", PAGE, re.MULTILINE))
"""Each error in the picture and its status, which is empty for an error that no caller gets."""


def errors() -> dict[str, type[Exception]]:
    return {
        name: kind
        for module in MODULES
        for name, kind in inspect.getmembers(importlib.import_module(module), inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == module
    }


def status(kind: type[Exception]) -> str:
    return next((str(number) for known, number, _ in answering._status_of if issubclass(kind, known)), "")


@pytest.mark.parametrize("name", errors())
def test_an_error_is_in_the_picture_with_its_status(name: str) -> None:
    kind = errors()[name]
    shown = SHOWN.get(name)
    if shown is None:
        base = kind.__subclasses__() and re.search(rf"^ [ │├└─]*{name}$", PAGE, re.MULTILINE)
        assert base, (
            f"{kind.__module__}: {name} is missing; add it to the picture in docs/internals/errors.md"
        )
        return
    assert shown == status(kind), (
        f"docs/internals/errors.md: callers get {status(kind) or 'no status'} for {name}"
    )


def test_the_picture_shows_no_error_that_is_gone() -> None:
    assert not SHOWN.keys() - errors().keys(), (
        "docs/internals/errors.md shows errors that are gone: remove them"
    )

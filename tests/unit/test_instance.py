"""A rate is that of one process over the last seconds, and a setting is shown only when it is listed and no secret."""

import re
from dataclasses import replace

from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.operations.instance import WINDOW_SECONDS, Tally
from cosmos_outbox.settings.environment import shown
from infra.bootstrap import service as contact_service
from tests.support.paths import ROOT

SECRETS = {
    "COSMOS": "AccountEndpoint=https://db.example/;AccountKey=c2VjcmV0LWtleQ==",
    "SERVICEBUS": "Endpoint=sb://bus.example/;SharedAccessKeyName=root;SharedAccessKey=very-secret",
}


def test_a_rate_counts_the_whole_seconds_of_the_window() -> None:
    now, tally = 100.0, Tally()
    with using(replace(SYSTEM, monotonic=lambda: now)):
        assert tally.per_second == 0
        tally.add(30)
        tally.add(20)
        assert tally.per_second == 0, "the second that is under way does not count"
        now += 1
        assert tally.per_second == 50 / WINDOW_SECONDS
        now += 4
        tally.add(10)
        now += 1
        assert (tally.per_second, tally.total) == (60 / WINDOW_SECONDS, 60)
        now = 100.0 + WINDOW_SECONDS + 1
        assert tally.per_second == 10 / WINDOW_SECONDS
        now += 60
        assert (tally.per_second, tally.total) == (0, 60)


def test_no_secret_is_shown() -> None:
    told = str(shown(contact_service.settings(SECRETS)))
    for secret in ("c2VjcmV0", "very-secret", "SharedAccessKey", "AccountKey"):
        assert secret not in told


def test_an_address_is_shown_and_each_name_is_a_documented_setting() -> None:
    told = shown(
        contact_service.settings(
            {"COSMOS__accountEndpoint": "https://db.example/", "SERVICEBUS__fullyQualifiedNamespace": "bus"}
        )
    )
    assert (told["COSMOS__accountEndpoint"], told["SERVICEBUS__fullyQualifiedNamespace"]) == (
        "https://db.example/",
        "bus",
    )
    documented = set(re.findall(r"`([A-Za-z_]+)`", (ROOT / "docs" / "use" / "settings.md").read_text()))
    assert set(told) <= documented

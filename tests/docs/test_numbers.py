"""A number on a page that the code decides is the code's; a sentence that was worded anew is found here."""

import json

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import ATTEMPTS
from cosmos_outbox.cosmos.transaction import MAX_BYTES, MAX_OPERATIONS, PATIENCE_SECONDS
from cosmos_outbox.http.request import DEFAULT_PAGE_SIZE, MAX_BODY_BYTES, MAX_PAGE_SIZE
from cosmos_outbox.inbox.receiver import HOLD_SECONDS, LONGEST_CALL_SECONDS, WAIT_SECONDS
from cosmos_outbox.operations import shedding
from cosmos_outbox.preflight.servicebus import MOST_DELIVERIES
from cosmos_outbox.servicebus.sessions import IDLE_SECONDS, MOST_SECONDS, WAITING
from cosmos_outbox.settings.environment import LEASE_EXPIRATION_MS
from cosmos_outbox.worker.probes import DRAIN_SECONDS, STUCK_SECONDS
from domain.values import COMPANY_LENGTH, DESCRIPTION_LENGTH, EMAIL_LENGTH, NAME_LENGTH
from infra.bootstrap import service as contact_service
from tests.support.paths import ROOT

SETTINGS = contact_service.settings({"COSMOS": "x", "SERVICEBUS": "x"})
DAY = 86_400
SESSIONS = json.loads((ROOT / "host.json").read_text())["extensions"]["serviceBus"]["maxConcurrentSessions"]

QUOTED = {
    "README.md": [f"`EVENT_TTL_SECONDS` ({SETTINGS.event_ttl_seconds // DAY} days)"],
    "docs/internals/how-it-works.md": [
        f"sends the same batch again, for {PATIENCE_SECONDS:.0f} seconds",
        f"after about {LEASE_EXPIRATION_MS // 1000} seconds, when the lease has expired",
        f"waits for {WAIT_SECONDS:.0f} seconds and gives the message back",
        f"up to {MOST_DELIVERIES} times: a day",
        f"after {SETTINGS.event_ttl_seconds // DAY} days (EVENT_TTL_SECONDS)",
    ],
    "docs/use/api.md": [
        f"{ATTEMPTS} times in all",
        f"at most {NAME_LENGTH} characters",
        f"at most {EMAIL_LENGTH} characters",
        f"at most {DESCRIPTION_LENGTH} characters",
        f"each at most {COMPANY_LENGTH} characters",
        f"A body holds at most {MAX_BODY_BYTES // 1024} KiB",
        f"1 to {MAX_PAGE_SIZE} contacts a page, {DEFAULT_PAGE_SIZE} unless `pageSize` says otherwise",
        f"for {SETTINGS.idempotency_ttl_seconds // 3600} hours (`IDEMPOTENCY_TTL_SECONDS`)",
    ],
    "docs/use/messages.md": [
        f"| {HOLD_SECONDS:.0f} s; then it is set aside",
    ],
    "docs/use/when-to-use.md": [f"A batch holds {MAX_OPERATIONS} documents and {MAX_BYTES >> 20} MB"],
    "docs/operate/deploy.md": [
        f"| `maxConcurrentSessions` | {SESSIONS} |",
        f"A worker holds {SESSIONS} sessions at a time",
        f"after {['', 'half a', 'a'][int(MOST_SECONDS // 30)]} minute.",
        f"A worker at rest has {WAITING} connections",
        f"`sessionIdleTimeout` | {IDLE_SECONDS} s",
        f"waits {WAIT_SECONDS:.0f} s inside a message",
        f"for up to {DRAIN_SECONDS:.0f} s",
        f"has had no iteration for {STUCK_SECONDS:.0f} s",
        f"longest call, which is {['', 'one', 'two'][int(LONGEST_CALL_SECONDS // 60)]} minutes",
    ],
    "docs/operate/slow-writers.md": [
        "`Retry-After` of {} to {} seconds".format(*shedding.RETRY_SECONDS),
        f"every {shedding.LOOK_SECONDS:.0f} seconds at most",
        f"does not answer the look for {shedding.TRUST_SECONDS:.0f} seconds",
        f"younger than {shedding.RESUME_SHARE:.0%} of the limit".replace("%", " %"),
    ],
}


@pytest.mark.parametrize(("page", "text"), [(page, text) for page, texts in QUOTED.items() for text in texts])
def test_a_page_states_the_codes_number(page: str, text: str) -> None:
    assert text in " ".join((ROOT / page).read_text().split())


def test_a_message_is_delivered_for_a_day_while_the_store_is_away() -> None:
    assert 1.0 < MOST_DELIVERIES * WAIT_SECONDS / DAY < 1.1

"""What the relay has forwarded is told by the oldest change that waits, and by nothing where a lease is missing."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from infra.relay_status import LeaseStatus, RelayStatus


def lease(waiting_since: int | None) -> LeaseStatus:
    since = None if waiting_since is None else datetime.fromtimestamp(waiting_since, UTC)
    return LeaseStatus("0", "instance", 1, 5, 0.1, since)


@pytest.mark.parametrize(
    ("waiting", "missing", "forwarded"),
    [
        ([None], [], True),
        ([None, None], [], True),
        ([1001], [], True),
        ([1000], [], False),  # it may be the very event
        ([999], [], False),
        ([None, 999], [], False),
        ([1001, None], [], True),
        ([None], ["1"], False),
        ([], ["0"], False),
    ],
)
def test_what_was_stored_at_1000_is_forwarded(
    waiting: list[int | None], missing: list[str], *, forwarded: bool
) -> None:
    status = RelayStatus([lease(each) for each in waiting], missing, Counter())
    assert status.has_forwarded(1000) is forwarded

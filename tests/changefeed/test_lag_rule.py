"""The lag of one page is the lag that the .NET estimator counts."""

import pytest

from cosmos_changefeed.feed import FeedPage
from cosmos_changefeed.lag import session_lsn, transactions_behind


def page(session_token: str, *lsns: int) -> FeedPage:
    return FeedPage([{"_lsn": lsn} for lsn in lsns], '"0"', session_token, 1.0)


@pytest.mark.parametrize(
    ("token", "lsn"),
    [
        ("0:-1#12", 12),
        ("3:12", 12),
        ("-1#12", 12),
        ("12", 12),
        ("0:0#12#4=-1#5=-1", 12),
        ("0:-1#12,1:-1#15", 15),
        ("1:-1#15,0:-1#12", 15),
    ],
)
def test_the_lsn_in_a_session_token(token: str, lsn: int) -> None:
    assert session_lsn(token) == lsn


def test_a_lease_that_has_seen_everything_has_no_lag() -> None:
    assert transactions_behind(page("0:-1#12")) == 0


def test_lag_counts_the_first_unread_change_and_each_later_transaction() -> None:
    assert transactions_behind(page("0:-1#12", 10)) == 3


def test_a_session_token_older_than_the_change_gives_no_negative_lag() -> None:
    assert transactions_behind(page("0:-1#5", 10)) == 0

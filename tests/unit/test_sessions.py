"""Of two session tokens the newer one is kept, in whatever order their answers come."""

import pytest

from cosmos_outbox.cosmos.store.client import SessionTokens, newest


@pytest.mark.parametrize(
    ("known", "token", "kept"),
    [
        (None, "0:-1#5", "0:-1#5"),
        ("0:-1#5", "0:-1#6", "0:-1#6"),
        ("0:-1#6", "0:-1#5", "0:-1#6"),
        ("0:-1#9", "0:-1#10", "0:-1#10"),
        ("0:2#5#1=4#2=5", "0:1#9#1=9", "0:2#5#1=4#2=5"),
        ("0:1#5#1=4", "0:1#7#1=6", "0:1#7#1=6"),
        ("0:-1#99", "1:-1#3", "0:-1#99,1:-1#3"),
        ("0:-1#99,1:-1#3", "0:-1#98", "0:-1#99,1:-1#3"),
        ("0:-1#99,1:-1#3", "1:-1#4", "0:-1#99,1:-1#4"),
        ("0:-1#5,1:-1#9", "3:-1#10", "1:-1#9,3:-1#10"),
        ("0:-1#5,1:-1#9", "1:-1#8,0:-1#6", "0:-1#6,1:-1#9"),
        ("what is this", "0:-1#5", "0:-1#5"),
        ("0:-1#5", "what is this", "what is this"),
    ],
)
def test_the_newest_wins(known: str | None, token: str, kept: str) -> None:
    assert newest(known, token) == kept


def test_an_answer_without_a_token_changes_nothing() -> None:
    tokens = SessionTokens()
    tokens.merge("a", "0:-1#5")
    tokens.merge("a", None)
    assert tokens.get("a") == "0:-1#5"


def test_a_token_that_came_while_another_failed_is_not_doubted() -> None:
    tokens = SessionTokens()
    tokens.merge("a", "0:-1#5")
    tokens.merge("a", "0:-1#6")
    tokens.doubt("a", "0:-1#5")
    assert not tokens.is_doubted("a")
    tokens.doubt("a", "0:-1#6")
    assert tokens.is_doubted("a")


def test_after_a_consistency_write_the_newest_token_since_the_doubt_holds() -> None:
    """A token of a container that was restored is newer than any that will be given for a long time."""
    tokens = SessionTokens()
    tokens.merge("a", "0:-1#999")
    tokens.doubt("a", "0:-1#999")
    for of_a_write_or_the_renewal in ("0:-1#7", "0:-1#9", "0:-1#8"):
        tokens.merge("a", of_a_write_or_the_renewal)
    tokens.doubt("a", "0:-1#999")
    assert tokens.get("a") == "0:-1#999"
    tokens.trust("a")
    tokens.trust("a")
    assert (tokens.get("a"), tokens.is_doubted("a")) == ("0:-1#9", False)


def test_a_read_that_failed_without_a_token_doubts_nothing() -> None:
    tokens = SessionTokens()
    tokens.doubt("a", None)
    assert not tokens.is_doubted("a")

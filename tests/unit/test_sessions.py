"""Of two session tokens the newer one is kept, in whatever order their answers come."""

import pytest

from infra.cosmos.sessions import SessionTokens, newest


@pytest.mark.parametrize(
    ("known", "token", "kept"),
    [
        (None, "0:-1#5", "0:-1#5"),
        ("0:-1#5", "0:-1#6", "0:-1#6"),
        ("0:-1#6", "0:-1#5", "0:-1#6"),
        ("0:-1#9", "0:-1#10", "0:-1#10"),
        ("0:2#5#1=4#2=5", "0:1#9#1=9", "0:2#5#1=4#2=5"),
        ("0:1#5#1=4", "0:1#7#1=6", "0:1#7#1=6"),
        ("0:-1#99", "1:-1#3", "1:-1#3"),
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


def test_a_token_that_came_while_another_failed_is_kept() -> None:
    tokens = SessionTokens()
    tokens.merge("a", "0:-1#5")
    tokens.merge("a", "0:-1#6")
    tokens.forget("a", "0:-1#5")
    assert tokens.get("a") == "0:-1#6"
    tokens.forget("a", "0:-1#6")
    assert tokens.get("a") is None

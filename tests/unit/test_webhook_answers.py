"""What an operator sees of an answer takes bounded work, and shows nothing of the event's data."""

import time

import pytest

from cosmos_outbox.webhook.answers import LONGEST_BODY, LONGEST_COMPARED, piece

DATA = {"name": {"firstName": "Ann", "lastName": "Mueller"}, "email": "ann.mueller@contoso.com"}


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"the field name is wrong", "the field name is wrong"),
        (b"Ann is not known", "… is not known"),
        (b"MUELLERS are not known", "… are not known"),
        (b"write to a@b.c or 0123", "write to … or …"),
        (b"x" * 50 + b" is long", "… is long"),
        (b"", ""),
    ],
)
def test_of_an_answer_nothing_personal_is_shown(body: bytes, shown: str) -> None:
    assert piece(body, DATA) == shown


def test_of_a_large_event_nothing_of_the_answer_is_shown() -> None:
    assert piece(b"the field name is wrong", {"text": "a" * (LONGEST_COMPARED + 1)}) == ""


def test_the_work_is_bounded_by_the_longest_event_and_answer() -> None:
    """Each word of the answer was once compared with each of the event: 6.8 s in one step of the loop."""
    words = " ".join(f"q{chr(97 + number % 26)}{chr(97 + number // 26 % 26)}rst" for number in range(9_000))
    began = time.process_time()
    piece(b"abcdefgh " * (LONGEST_BODY // 9), {"text": words[:LONGEST_COMPARED]})
    assert time.process_time() - began < 1.0

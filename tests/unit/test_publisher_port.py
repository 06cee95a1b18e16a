"""A transport names the guarantees that it lacks, for the authors of subscribers."""

import pytest

from cosmos_outbox.outbox.publisher import Guarantees


@pytest.mark.parametrize(
    ("ordered", "deduplicates", "words"),
    [
        (True, True, []),
        (False, True, ["order"]),
        (True, False, ["duplicates"]),
        (False, False, ["order", "duplicates"]),
    ],
)
def test_what_is_left_to_subscribers(ordered: bool, deduplicates: bool, words: list[str]) -> None:
    guarantees = Guarantees(ordered, deduplicates, mixes_aggregates=True, largest_message_bytes=None)
    said = guarantees.left_to_subscribers()
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))

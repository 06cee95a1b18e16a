"""A read that goes back behind what its session saw, or shows what never was, is found; so is a condition ignored."""

from typing import Any

import pytest

from cosmos_outbox.testing.judging.reads import EVERYBODY
from tests.torture.story import CONTACT, Story, details


def two() -> Story:
    """A contact at sequence 2, whose second change was answered within session s."""
    told = Story().created("a").delivered("a", "Created", 1)
    told.asked("b", call="change", contact=CONTACT, properties=("name",), session="s")
    told.answered("b", status=200, body=at(2), sequence=2, etag="v2")
    return told.delivered("b", "NameUpdated", 2).found(name="b")


def at(sequence: int) -> dict[str, Any]:
    """The contact after its first, or its second event."""
    return {"id": CONTACT, **details("a")} | ({"name": details("b")["name"]} if sequence == 2 else {})


def read(
    told: Story, sequence: int | None, *, name: str = "r", session: str | None = "s", body: Any = None
) -> Story:
    """A read; without a sequence nothing is found."""
    told.asked(name, call="read", contact=CONTACT, session=session)
    if sequence is None:
        return told.answered(name, "refused", status=404)
    return told.answered(name, status=200, body=body or at(sequence), sequence=sequence)


def test_a_read_shows_what_its_session_saw() -> None:
    assert read(two(), 2).rules() == set()
    assert read(read(two(), 1, session="another"), 2, name="r2", session="another").rules() == set()


@pytest.mark.parametrize("session", [None, "another"])
@pytest.mark.parametrize("sequence", [1, None])
def test_a_read_of_another_session_may_be_old(session: str | None, sequence: int | None) -> None:
    assert read(two(), sequence, session=session).rules() == set()


@pytest.mark.parametrize("sequence", [1, None])
def test_a_read_of_the_newest_misses_nothing_that_anybody_saw(sequence: int | None) -> None:
    assert read(two(), 2, session=EVERYBODY).rules() == set()
    assert read(two(), sequence, session=EVERYBODY).rules() == {"read went back"}


@pytest.mark.parametrize("sequence", [1, None])
def test_a_read_that_goes_back_is_seen(sequence: int | None) -> None:
    assert read(two(), sequence).rules() == {"read went back"}
    again = read(read(two(), 2, session="t"), sequence, name="r2", session="t")
    assert again.rules() == {"read went back"}


def test_a_read_that_was_asked_before_the_answer_may_be_old() -> None:
    told = Story().created("a").delivered("a", "Created", 1)
    told.asked("b", call="change", contact=CONTACT, properties=("name",), session="s")
    told.asked("r", call="read", contact=CONTACT, session="s")
    told.answered("b", status=200, body=at(2), sequence=2)
    told.answered("r", status=200, body=at(1), sequence=1)
    assert told.delivered("b", "NameUpdated", 2).found(name="b").rules() == set()


def test_a_contact_that_somebody_deletes_may_be_gone_and_one_that_the_session_deleted_is() -> None:
    told = two().asked("d", call="delete", contact=CONTACT)
    assert read(told, None).answered("d", status=204).delivered("d", "Deleted", 3).rules() >= {
        "aggregate without its events"
    }
    gone = two()
    gone.history.found.clear()
    gone.asked("d", call="delete", contact=CONTACT, session="s").answered("d", status=204)
    gone.delivered("d", "Deleted", 3)
    assert read(gone, 2).rules() == {"read went back"}


def test_a_read_of_what_never_was_is_seen() -> None:
    assert read(two(), 2, body=at(1)).rules() == {"read of what never was"}
    assert read(two(), 1, body=at(2), session=None).rules() == {"read of what never was"}
    unknown = read(two(), 7, body=at(1))
    assert unknown.rules() == set()  # its events have not arrived: the contact is looked at again


def conditional(told: Story, etag: str, sequence: int) -> Story:
    """A change on condition of a version, whose event got this number."""
    told.asked("c", call="change", contact=CONTACT, properties=("email",), if_match=etag)
    body = at(2) | {"email": details("c")["email"]}
    told.answered("c", status=200, body=body, sequence=sequence, etag="v-of-c")
    told.delivered("c", "EmailUpdated", sequence)
    told.history.found.clear()
    return told.found(name="b", email="c")


def test_a_condition_that_holds_is_right() -> None:
    assert conditional(two(), "v2", 3).rules() == set()
    assert conditional(two(), "nobody told of this one", 3).rules() == set()


def test_a_condition_that_was_ignored_is_seen() -> None:
    told = two().patched("x", "description").delivered("x", "DescriptionUpdated", 3)
    told = conditional(told, "v2", 4)
    told.history.found.clear()
    assert told.found(name="b", email="c", description="x").rules() == {"condition ignored"}


def test_a_condition_is_also_on_what_was_read() -> None:
    told = two().patched("x", "description").delivered("x", "DescriptionUpdated", 3)
    told.asked("r", call="read", contact=CONTACT)
    told.answered("r", status=200, body=at(2), sequence=2, etag="read at 2")
    told = conditional(told, "read at 2", 4)
    told.history.found.clear()
    assert told.found(name="b", email="c", description="x").rules() == {"condition ignored"}


def test_one_etag_of_two_versions_is_seen() -> None:
    told = two().asked("r", call="read", contact=CONTACT)
    told.answered("r", status=200, body=at(1), sequence=1, etag="v2")
    assert told.rules() == {"one ETag, two versions"}

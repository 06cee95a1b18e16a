"""Where the store is watched, what it took is what subscribers get: each difference is found, and nothing else."""

from tests.torture.story import CONTACT, Story


def whole() -> Story:
    """A contact of two events: stored, sent, and in the final list."""
    return two().delivered("a", "Created", 1, event="e1").delivered("b", "NameUpdated", 2, event="e2")


def two() -> Story:
    told = Story().created("a").stored("a", "Created", 1, event="e1")
    return told.patched("b", "name").stored("b", "NameUpdated", 2, event="e2").found(name="b")


def test_what_was_stored_and_sent_is_right() -> None:
    assert whole().rules() == set()


def test_an_event_that_is_stored_and_never_sent_is_lost() -> None:
    assert two().delivered("a", "Created", 1, event="e1").rules() == {"lost event"}


def test_a_change_that_was_acknowledged_without_its_event_in_the_store_is_seen_at_once() -> None:
    told = Story().created("a").stored("a", "Created", 1, event="e1").delivered("a", "Created", 1, event="e1")
    assert told.patched("b", "name").found().rules() == {"acknowledged, and not stored"}


def test_an_event_that_the_relay_invents_or_changes_is_seen() -> None:
    invented = whole().delivered("b", "NameUpdated", 3, event="e3")
    assert invented.rules() == {"sent, and never stored"}
    changed = two().delivered("a", "Created", 1, event="e1")
    changed.delivered("b", "NameUpdated", 2, event="e2", differing={"more": 1})
    assert changed.rules() == {"message and store differ"}


def test_a_refused_change_that_is_stored_is_seen_before_it_is_sent() -> None:
    told = whole().patched("c", "email", outcome="refused").stored("c", "EmailUpdated", 3, event="e3")
    assert told.rules() >= {"refused, and done", "lost event"}


def test_a_change_of_which_half_is_stored_is_seen() -> None:
    told = whole().patched("c", "name", "email", outcome="unknown").stored("c", "EmailUpdated", 3, event="e3")
    assert "half done" in told.delivered("c", "EmailUpdated", 3, event="e3").rules()


def behind() -> Story:
    """The second of three events is not sent."""
    told = two().patched("c", "email").stored("c", "EmailUpdated", 3, event="e3")
    told.history.found.clear()
    return told.found(name="b", email="c").delivered("a", "Created", 1, event="e1")


def test_a_discarded_event_is_excused_when_its_notice_has_its_place() -> None:
    told = behind().discarding("e2").discarded("e2").noticed("e2", sequence=2)
    assert told.delivered("c", "EmailUpdated", 3, event="e3").rules() == set()


def test_an_answer_to_a_discarding_that_was_lost_excuses_the_event_only_with_its_notice() -> None:
    told = behind().discarding("e2").noticed("e2", sequence=2)
    assert told.delivered("c", "EmailUpdated", 3, event="e3").rules() == set()
    tried = behind().discarding("e2").delivered("c", "EmailUpdated", 3, event="e3")
    assert tried.rules() == {"lost event", "order"}
    confirmed = behind().discarding("e2").discarded("e2").delivered("c", "EmailUpdated", 3, event="e3")
    assert confirmed.rules() == {"lost event", "order"}


def test_a_notice_without_anybody_who_asked_excuses_nothing() -> None:
    told = behind().noticed("e2", sequence=2).delivered("c", "EmailUpdated", 3, event="e3")
    assert told.rules() >= {"invented notice", "lost event"}


def test_a_notice_in_another_place_is_seen() -> None:
    told = behind().discarding("e2").delivered("c", "EmailUpdated", 3, event="e3").noticed("e2", sequence=2)
    assert told.rules() == {"order"}


def test_an_event_that_is_sent_after_it_was_discarded_is_seen() -> None:
    told = behind().discarding("e2").noticed("e2", sequence=2).delivered("b", "NameUpdated", 2, event="e2")
    assert told.delivered("c", "EmailUpdated", 3, event="e3").rules() == {"sent after it was discarded"}
    before = behind().delivered("b", "NameUpdated", 2, event="e2").discarding("e2").noticed("e2", sequence=2)
    assert before.delivered("c", "EmailUpdated", 3, event="e3").rules() == set()


def test_a_worker_that_ends_by_itself_is_seen() -> None:
    told = whole()
    told.ended("relay-1", "KeyError")
    assert told.rules() == {"worker ended"}


def test_a_second_message_is_a_duplicate_only_within_the_window() -> None:
    """Each record of a story takes a second: the second message is taken one second after the first."""
    told = Story().created("a").delivered("a", "Created", 1, event="e1")
    told.delivered("a", "Created", 1, event="e1").found()
    assert told.rules() == {"duplicate"}
    assert told.rules(duplicate_window=2.0) == {"duplicate"}
    assert told.rules(duplicate_window=1.0) == set()


def test_the_final_list_says_up_to_which_event_it_goes() -> None:
    told = whole()
    told.history.found[-1] = told.history.found[-1].model_copy(update={"sequence": 1})
    assert told.rules() == {"state differs from the events"}
    assert told.history.found[-1].aggregate == CONTACT


def test_what_is_sent_when_its_operator_was_told_that_it_is_given_up_is_seen() -> None:
    told = behind().discarding("e2").discarded("e2", surely=True)
    told.delivered("b", "NameUpdated", 2, event="e2").delivered("c", "EmailUpdated", 3, event="e3")
    assert told.rules() == {"sent after it was discarded"}

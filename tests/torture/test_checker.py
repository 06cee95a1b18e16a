"""Each rule of the checker finds its violation in a history written by hand, and nothing in a good one."""

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from cosmos_outbox.testing.judging.checker import check
from cosmos_outbox.testing.judging.records import HandedOut, Outcome
from tests.support.paths import ROOT
from tests.torture.contacts import Contacts
from tests.torture.story import ALL, CONTACT, OTHER, Story, details, final, good


def test_a_good_run_has_no_violations() -> None:
    story = good().found(**final()).created("c", OTHER).delivered("c", "Created", 1, contact=OTHER)
    story.deleted("d", OTHER).delivered("d", "Deleted", 2, contact=OTHER)
    story.patched("e", "name", outcome="unknown").patched("f", "email", outcome="refused")
    assert story.rules() == set()


def test_a_redelivery_to_a_crashed_subscriber_is_none() -> None:
    story = good().found(**final())
    story.delivered("b", "EmailUpdated", 3, event="event-3", broker_number=3).completed(3)
    assert story.rules() == set()


def test_an_unknown_change_may_have_happened() -> None:
    story = good().patched("c", "name", outcome="unknown").delivered("c", "NameUpdated", 4)
    assert story.found(name="c", email="b").rules() == set()


def test_a_keyed_creation_that_was_answered_again_is_one() -> None:
    story = Story().asked("a", call="create", properties=ALL, key="k").answered("a", "unknown")
    story.asked("a", number=2, call="create", properties=ALL, key="k")
    story.answered("a", number=2, status=201, replayed=True, body={"id": CONTACT, **details("a")})
    assert story.delivered("a", "Created", 1).found().rules() == set()


def test_a_lost_event_at_the_end_is_seen_by_the_acknowledged_change() -> None:
    story = Story().created("a").patched("b", "name").delivered("a", "Created", 1).found(name="b")
    assert story.rules() == {"lost event", "state differs from the events"}


def test_a_lost_event_of_an_unknown_change_is_seen_by_the_final_state() -> None:
    story = Story().created("a").patched("b", "name", outcome="unknown").delivered("a", "Created", 1)
    assert story.found(name="b").rules() == {"state differs from the events"}


def test_a_lost_event_in_between_is_a_gap() -> None:
    story = Story().created("a").patched("b", "name", outcome="unknown").patched("c", "name")
    story.delivered("a", "Created", 1).delivered("c", "NameUpdated", 3)
    assert story.found(name="c").rules() == {"order"}


def test_half_of_a_change_is_seen() -> None:
    story = Story().created("a").patched("b", "name", "email", outcome="unknown")
    story.delivered("a", "Created", 1).delivered("b", "NameUpdated", 2)
    assert story.found(name="b").rules() == {"half done"}


def test_disorder_is_seen() -> None:
    story = Story().created("a").patched("b", "name", "email").delivered("a", "Created", 1)
    story.delivered("b", "EmailUpdated", 3).delivered("b", "NameUpdated", 2)
    assert story.found(**final()).rules() == {"order"}


def test_disorder_in_the_broker_is_seen_even_when_the_subscriber_was_lucky() -> None:
    story = Story().created("a").patched("b", "name").delivered("a", "Created", 1, broker_number=9)
    assert story.delivered("b", "NameUpdated", 2, broker_number=8).found(name="b").rules() == {"order"}


def test_a_change_that_was_answered_first_comes_first() -> None:
    story = Story().created("a").patched("b", "name").patched("c", "name").delivered("a", "Created", 1)
    story.delivered("c", "NameUpdated", 2).delivered("b", "NameUpdated", 3)
    assert story.found(name="b").rules() == {"order in time"}


def test_changes_at_the_same_time_come_in_any_order() -> None:
    story = Story().created("a").delivered("a", "Created", 1)
    story.asked("b", call="change", contact=CONTACT, properties=("name",)).patched("c", "name")
    story.answered("b", status=200, body={"id": CONTACT, **details("b")})
    story.delivered("c", "NameUpdated", 2).delivered("b", "NameUpdated", 3)
    assert story.found(name="b").rules() == set()


def test_a_duplicate_is_seen() -> None:
    story = good().delivered("b", "EmailUpdated", 3, event="event-3", broker_number=99)
    assert story.found(**final()).rules() == {"duplicate"}


def test_an_aggregate_in_two_sessions_is_seen() -> None:
    story = good()
    story.records[:] = [
        each.model_copy(update={"session": f"32-0{number % 2}"}) if isinstance(each, HandedOut) else each
        for number, each in enumerate(story.records)
    ]
    assert story.found(**final()).rules() == {"several sessions"}


def test_a_delivery_after_completion_is_seen() -> None:
    story = good().completed(3).delivered("b", "EmailUpdated", 3, event="event-3", broker_number=3)
    assert story.found(**final()).rules() == {"delivered after completion"}


def test_a_change_that_was_made_twice_is_seen() -> None:
    story = good().delivered("b", "NameUpdated", 4).found(**final())
    assert story.rules() == {"done twice"}


def test_an_event_that_nobody_asked_for_is_seen() -> None:
    assert good().delivered("nobody", "NameUpdated", 4).found(name="nobody", email="b").rules() == {
        "invented event"
    }
    assert good().delivered("b", "CompanyUpdated", 4).found(**final(), company="b").rules() == {
        "invented event"
    }


def test_a_refused_change_that_was_made_is_seen() -> None:
    story = good().patched("c", "name", outcome="refused").delivered("c", "NameUpdated", 4)
    assert story.found(name="c", email="b").rules() == {"refused, and done"}


def test_an_event_of_another_contact_is_seen() -> None:
    story = good().found(**final()).created("c", OTHER).delivered("c", "Created", 1, contact=OTHER)
    story.patched("d", "name").delivered("d", "NameUpdated", 2, contact=OTHER).found(OTHER, name="d")
    for name in ("email", "description", "company"):
        story.history.found[-1].body[name] = details("c")[name]
    assert story.rules() == {"wrong aggregate"}


@pytest.mark.parametrize("field_name", ["id", "contactId", "action", "sequence"])
def test_a_message_that_says_something_else_than_its_body_is_seen(field_name: str) -> None:
    story = Story().created("a").delivered("a", "Created", 1, differing={field_name: "another"}).found()
    assert story.rules() == {"message and body differ"}


def test_wrong_content_is_seen() -> None:
    story = Story().created("a").patched("b", "email").delivered("a", "Created", 1)
    assert story.delivered("b", "EmailUpdated", 2, differing={"email": "x@example.com"}).found(
        email="b"
    ).rules() == {
        "wrong content",
        "state differs from the events",
    }


def test_a_contact_that_does_not_begin_with_its_creation_is_seen() -> None:
    story = Story().created("a").patched("b", "name")
    story.delivered("b", "NameUpdated", 1).delivered("a", "Created", 2)
    assert "order" in story.found().rules()


def test_a_contact_that_goes_on_after_its_deletion_is_seen() -> None:
    story = Story().created("a").patched("b", "name").deleted("c").delivered("a", "Created", 1)
    assert story.delivered("c", "Deleted", 2).delivered("b", "NameUpdated", 3).rules() == {
        "order",
        "order in time",
    }


def test_a_lost_contact_is_seen() -> None:
    assert good().rules() == {"lost aggregate"}


def test_a_deleted_contact_that_is_still_there_is_seen() -> None:
    story = Story().created("a").deleted("b").delivered("a", "Created", 1).delivered("b", "Deleted", 2)
    assert story.found().rules() == {"aggregate without its events"}


def test_a_contact_that_is_listed_twice_is_seen() -> None:
    assert good().found(**final()).found(**final()).rules() == {"doubled aggregate"}


def test_a_contact_without_events_is_seen() -> None:
    story = Story().asked("a", call="create", properties=ALL).answered("a", "unknown")
    assert story.found().rules() == {"aggregate without its events"}


def test_a_creation_that_made_two_contacts_is_seen() -> None:
    story = Story().asked("a", call="create", properties=ALL, key="k").answered("a", "unknown")
    story.asked("a", number=2, call="create", properties=ALL, key="k")
    story.answered("a", number=2, status=201, body={"id": CONTACT, **details("a")})
    story.delivered("a", "Created", 1, number=2).found()
    story.delivered("a", "Created", 1, contact=OTHER).found(OTHER)
    assert story.rules() == {"done twice", "wrong aggregate"}


def test_a_key_whose_answers_name_two_contacts_or_two_firsts_is_seen() -> None:
    story = good().found(**final()).asked("a", number=2, call="create", properties=ALL, key="k")
    story.answered("a", number=2, status=201, body={"id": OTHER, **details("a")})
    assert story.rules() == {"acknowledged twice", "doubled aggregate"}


def keyed(story: Story, number: int, status: int | None, **asked: Any) -> Story:
    """An attempt at a creation with a key."""
    story.asked("a", number=number, **({"call": "create", "properties": ALL, "key": "k"} | asked))
    if status == 201:
        body = {"id": CONTACT, **details("a")}
        return story.answered("a", number=number, status=201, replayed=number > 1, body=body)
    outcome: Outcome = "unknown" if status in (None, 503) else "refused"
    return story.answered("a", outcome, number=number, status=status)


def test_a_repetition_that_is_refused_for_ever_is_seen() -> None:
    """As by a service that takes its own finished request for one that is still being answered."""
    story = keyed(keyed(keyed(Story(), 1, None), 2, 409), 3, 409)
    assert story.delivered("a", "Created", 1).found().rules() == {"repetition refused"}
    after_the_answer = keyed(keyed(Story(), 1, 201), 2, 409)
    assert after_the_answer.delivered("a", "Created", 1).found().rules() == {"repetition refused"}
    of_the_corrected = keyed(Story(), 1, 422).asked("b", call="create", properties=ALL, key="l")
    assert of_the_corrected.rules() == {"repetition refused"}


def test_a_repetition_that_is_told_to_come_again_is_no_violation() -> None:
    story = keyed(keyed(keyed(keyed(Story(), 1, None), 2, 503), 3, 429), 4, 201)
    assert story.delivered("a", "Created", 1).found().rules() == set()
    other_body = keyed(keyed(Story(), 1, 201).delivered("a", "Created", 1).found(), 2, 201)
    other_body.asked("b", call="create", properties=ALL, key="k", reuses_key=True)
    assert other_body.answered("b", "refused", status=422).rules() == set()


def test_a_change_with_a_key_that_is_refused_once_it_is_made_or_answered_otherwise_is_seen() -> None:
    def asked(story: Story, number: int) -> Story:
        return story.asked("c", number=number, call="change", contact=CONTACT, properties=("name",), key="k")

    def made() -> Story:
        story = asked(good().found(name="c", email="b"), 1)
        story.answered("c", status=200, sequence=4, body={"id": CONTACT, **details("c")})
        return story.delivered("c", "NameUpdated", 4)

    refused = asked(made(), 2).answered("c", "refused", number=2, status=412)
    assert refused.rules() == {"made, and refused"}
    first = asked(Story(), 1).answered("c", "refused", status=412)
    assert "made, and refused" not in first.rules()
    other = asked(made(), 2).answered("c", number=2, status=200, sequence=5, replayed=True)
    assert other.rules() == {"repetition differs"}
    again = asked(made(), 2).answered("c", number=2, status=200, sequence=4, replayed=True)
    assert again.rules() == set()


def test_a_first_answer_is_gone_only_where_the_contact_was_deleted() -> None:
    story = keyed(Story(), 1, 201).delivered("a", "Created", 1)
    assert keyed(story, 2, 410).found().rules() == {"repetition refused"}
    story = keyed(Story(), 1, 201).deleted("d")
    assert keyed(story, 2, 410).delivered("a", "Created", 1).delivered("d", "Deleted", 2).rules() == set()


def test_a_used_key_that_is_accepted_is_seen() -> None:
    story = good().found(**final()).asked("c", call="create", properties=ALL, key="k", reuses_key=True)
    story.answered("c", status=201, replayed=True, body={"id": CONTACT, **details("c")})
    assert story.rules() == {"reused key"}


def test_an_answer_that_does_not_show_the_change_is_seen() -> None:
    story = Story().created("a").delivered("a", "Created", 1).found(name="b")
    story.asked("b", call="change", contact=CONTACT, properties=("name",))
    story.answered("b", status=200, body={"id": CONTACT, **details("a")}).delivered("b", "NameUpdated", 2)
    assert story.rules() == {"wrong answer"}


def test_a_failure_that_is_none_of_the_promised_answers_is_seen() -> None:
    story = good().found(**final()).asked("c", call="change", contact=CONTACT, properties=("name",))
    assert story.answered("c", "unknown", status=500).rules() == {"unexpected answer"}


def refused(story: Story, operation: str, status: int, **asked: Any) -> Story:
    story.asked(operation, **({"call": "change", "contact": CONTACT, "properties": ("name",)} | asked))
    return story.answered(operation, "refused", status=status)


def test_a_contact_that_is_not_found_although_nobody_deleted_it_is_seen() -> None:
    assert refused(good().found(**final()), "c", 404).rules() == {"not found, but there"}
    deletion = refused(good().found(**final()), "c", 404, call="delete", properties=())
    assert deletion.rules() == {"not found, but there"}
    meanwhile = good().found(**final()).asked("d", call="delete", contact=CONTACT)
    assert refused(meanwhile, "c", 404).rules() == set()


def test_a_change_that_is_refused_as_stale_although_nobody_changed_the_contact_is_seen() -> None:
    def story() -> Story:
        told = good().found(**final()).asked("c", call="change", contact=CONTACT, properties=("name",))
        told.answered("c", status=200, body={"id": CONTACT, **details("c")}, etag="new")
        return told.delivered("c", "NameUpdated", 4)

    rule = "refused as changed, but unchanged"
    assert rule in refused(story(), "d", 412, if_match="new").rules()
    assert rule not in refused(story(), "d", 412, if_match="older").rules()
    changed = story().patched("e", "email").delivered("e", "EmailUpdated", 5)
    assert rule not in refused(changed, "d", 412, if_match="new").rules()
    maybe = story().patched("e", "email", outcome="unknown")
    assert rule not in refused(maybe, "d", 412, if_match="new").rules()
    in_vain = story().patched("e", "email", outcome="refused")
    assert rule in refused(in_vain, "d", 412, if_match="new").rules()


def test_a_violation_that_waiting_can_end_is_told_apart() -> None:
    story = Story().created("a")
    story.history.add(story.records)
    assert [violation.may_pass for violation in check(story.history, Contacts())] == [True]
    story = Story().created("a").delivered("a", "Created", 2)
    story.history.add(story.records)
    assert any(not violation.may_pass for violation in check(story.history, Contacts()))


JUDGING = sorted((ROOT / "cosmos_outbox" / "testing" / "judging").glob("*.py"))


@pytest.mark.parametrize("module", JUDGING, ids=lambda module: module.stem)
def test_the_judges_know_nothing_of_the_code_under_test(module: Path) -> None:
    tree = ast.parse(module.read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names]
    own = "cosmos_outbox.testing.judging."
    others = {name.partition(".")[0] for name in names if not name.startswith(own)}
    assert others <= {*sys.stdlib_module_names, "pydantic"}

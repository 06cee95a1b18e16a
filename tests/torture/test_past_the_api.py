"""What is written past the API is judged: broken documents, events of other versions, and what waits behind them."""

from tests.torture.story import CONTACT, OTHER, Story, final, good


def test_poison_that_is_parked_is_no_violation() -> None:
    story = good().found(**final()).poisoned("p").poisoned("q", stored=None).poisoned("r", contact=CONTACT)
    story.parked("p").parked("r", contact=CONTACT).parked("event-9", contact=CONTACT).noticed("r")
    assert story.rules() == set()


def test_the_notice_of_a_document_of_no_contact_may_wait_in_the_parked_list() -> None:
    story = good().found(**final()).poisoned("p").parked("p").parked("notice", contact="nobody")
    assert story.noticed("p", "nobody").rules() == set()


def test_each_mistake_with_a_notice_is_seen() -> None:
    sick = good().found(**final()).poisoned("r", contact=CONTACT).parked("r", contact=CONTACT)
    assert sick.rules() == {"no notice"}
    assert sick.noticed("r").noticed("r").rules() == {"two notices"}
    assert good().found(**final()).noticed("event-3").rules() == {"invented notice"}


def test_each_mistake_with_poison_is_seen() -> None:
    assert good().found(**final()).poisoned("p").rules() == {"not parked"}
    assert good().found(**final()).poisoned("p").parked("p", reason="").rules() == {"parked without a reason"}
    assert good().found(**final()).parked("event-3", contact=CONTACT).rules() == {"parked without need"}
    twice = good().found(**final()).poisoned("p").parked("p").parked("p")
    assert twice.rules() == {"parked twice"}
    left = good().found(**final()).poisoned("p").parked("p")
    left.history.still_parked = [*left.history.parked]
    assert left.rules() == {"still parked"}
    sent = good().found(**final()).poisoned("p").parked("p")
    sent.delivered("p", "NameUpdated", 4, event="p")
    assert {"poison delivered", "invented event"} <= sent.rules()


def imported() -> Story:
    """A contact, then an event without a sequence, then a change."""
    return Story().created("a").unsequenced("u").patched("b", "email")


def test_an_event_without_a_sequence_is_expected_once_in_its_place() -> None:
    good = imported().delivered("a", "Created", 1).delivered_without_sequence("u")
    assert good.delivered("b", "EmailUpdated", 2).found(email="b").rules() == set()
    maybe = Story().created("a").unsequenced("u", stored=False).delivered("a", "Created", 1).found()
    assert maybe.rules() == set()


def test_an_event_without_a_sequence_that_is_lost_doubled_or_out_of_its_place_is_seen() -> None:
    lost = imported().delivered("a", "Created", 1).delivered("b", "EmailUpdated", 2)
    assert lost.found(email="b").rules() == {"lost event"}
    twice = imported().delivered("a", "Created", 1).delivered_without_sequence("u")
    twice.delivered_without_sequence("u").delivered("b", "EmailUpdated", 2)
    assert twice.found(email="b").rules() == {"duplicate"}
    early = imported().delivered_without_sequence("u").delivered("a", "Created", 1)
    assert early.delivered("b", "EmailUpdated", 2).found(email="b").rules() == {"order in time"}
    late = imported().delivered("a", "Created", 1).delivered("b", "EmailUpdated", 2)
    assert late.delivered_without_sequence("u").found(email="b").rules() == {"order in time"}


def test_an_event_without_a_sequence_that_was_discarded_is_excused_by_its_notice() -> None:
    def refused() -> Story:
        told = Story().created("a").stored("a", "Created", 1, event="event-1").unsequenced("u")
        told.delivered("a", "Created", 1)
        return told.poisoned("refused:u", contact=CONTACT, stored=None).parked("u", contact=CONTACT)

    assert refused().discarding("u").discarded("u").noticed("u").found().rules() == set()
    assert refused().discarding("u").noticed("u").found().rules() == set()  # its answer was lost
    assert refused().discarding("u").found().rules() == {"lost event"}
    back = refused().discarding("u").discarded("u").noticed("u").delivered_without_sequence("u").found()
    assert back.rules() == {"sent after it was discarded"}


def test_an_event_without_a_sequence_says_so_and_names_itself() -> None:
    silent = imported().delivered("a", "Created", 1).delivered_without_sequence("u", says_so=False)
    assert silent.delivered("b", "EmailUpdated", 2).found(email="b").rules() == {"message and body differ"}
    elsewhere = imported().delivered("a", "Created", 1).delivered_without_sequence("u", contact=OTHER)
    assert elsewhere.delivered("b", "EmailUpdated", 2).found(email="b").rules() == {"message and body differ"}
    invented = Story().created("a").delivered("a", "Created", 1).delivered_without_sequence("v").found()
    assert "invented event" in invented.rules()


def test_an_event_that_is_parked_while_nothing_is_in_its_way_is_seen() -> None:
    def story(hour: int) -> Story:
        told = Story().created("a").poisoned("p", contact=CONTACT).parked("p", contact=CONTACT)
        told.delivered("a", "Created", 1).noticed("p").discarded("p").free(hour=2).found()
        return told.parked("event-1", contact=CONTACT, hour=hour)

    assert story(hour=1).rules() == set()
    assert story(hour=3).rules() == {"parked again"}
    another = story(hour=3).poisoned("q", contact=CONTACT).parked("q", contact=CONTACT).noticed("q")
    assert another.rules() == set()  # which may be in the way, since nobody discarded it


def test_what_the_relay_had_not_reached_when_its_contact_was_free_is_parked_later() -> None:
    told = Story().created("a").poisoned("p", contact=CONTACT).poisoned("q", contact=CONTACT)
    told.parked("p", contact=CONTACT).delivered("a", "Created", 1).noticed("p").discarded("p").free(hour=2)
    told.parked("q", contact=CONTACT, hour=3).noticed("q").discarded("q").found()
    assert told.rules() == set()
    assert told.free(hour=4).parked("event-1", contact=CONTACT, hour=5).rules() == {"parked again"}


def refused(*, event: str = "event-2", stored: bool = True, parked: str | None = None) -> Story:
    """A contact whose second event the broker refuses at first."""
    told = Story().created("a").patched("b", "name")
    if stored:
        told.stored("a", "Created", 1, event="event-1").stored("b", "NameUpdated", 2, event="event-2")
    told.poisoned(f"refused:{event}", contact=CONTACT, stored=None)
    if parked is not None:
        told.parked(parked, contact=CONTACT)
    return told.delivered("a", "Created", 1).delivered("b", "NameUpdated", 2).found(name="b")


def test_a_refused_event_excuses_what_is_behind_it_and_not_what_is_before_it() -> None:
    assert refused().parked("event-2", contact=CONTACT).rules() == set()
    assert refused(parked="event-1").rules() == {"parked without need"}
    assert refused().parked("event-1", contact=CONTACT).rules() == set()  # it was sent, and came again
    assert refused(event="event-1").parked("event-1", contact=CONTACT).rules() == set()


def test_a_refused_event_excuses_nothing_once_the_broker_has_it_and_its_contact_is_free() -> None:
    free = refused().parked("event-2", contact=CONTACT, hour=1).free(hour=2)
    assert free.rules() == set()
    assert free.parked("event-2", contact=CONTACT, hour=3).rules() == {"parked again"}
    again = refused().free(hour=2).poisoned("refused:event-2", contact=CONTACT, stored=None)
    assert again.parked("event-2", contact=CONTACT, hour=3).rules() == set()

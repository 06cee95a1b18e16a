"""Where an item's partition key stands is declared once, and read and written in one way."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths, at, put
from cosmos_outbox.cosmos.store.stored_values import document_id, lifetime
from cosmos_outbox.cosmos.upkeep.inspection import ContainerState, IndexingPolicy
from cosmos_outbox.functions.function_app import app
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.feed import Lifetime
from cosmos_outbox.preflight import containers, cosmos_rules
from cosmos_outbox.settings.names import Names
from cosmos_outbox.settings.own_container import OwnContainer, OwnDocuments
from cosmos_outbox.wiring.service import Service
from domain.contact import Contact
from examples.orders.board import FORM, entry_of, project
from tests.support.own import NOWHERE

ONE, NESTED = PartitionKeyPaths(("/tenantId",)), PartitionKeyPaths(("/owner/tenant/id",))
TWO = PartitionKeyPaths(("/tenantId", "/owner/id"))
KEYS: list[tuple[PartitionKeyPaths, Any, dict[str, Any]]] = [
    (PARTITION_KEY, "a", {"partitionKey": "a"}),
    (ONE, 17, {"tenantId": 17}),
    (ONE, False, {"tenantId": False}),
    (NESTED, "a", {"owner": {"tenant": {"id": "a"}}}),
    (TWO, ("a", 1.5), {"tenantId": "a", "owner": {"id": 1.5}}),
]


@pytest.mark.parametrize(("paths", "key", "fields"), KEYS)
def test_a_key_is_written_and_read_at_its_paths(paths: PartitionKeyPaths, key: Any, fields: Any) -> None:
    assert paths.fields(key) == fields
    assert paths.of(fields | {"id": "x"}) == key
    assert paths.of({"id": "x"}) is None
    assert paths.key([*key] if isinstance(key, tuple) else key) == key


@pytest.mark.parametrize(
    ("paths", "given", "message"),
    [
        (ONE, ["a"], "one value, of /tenantId"),
        (NESTED, ("a", "b"), "one value, of /owner/tenant/id"),
        (TWO, "a", "a list with a value for each of /tenantId, /owner/id"),
        (TWO, ["a"], "a list with a value for each of /tenantId, /owner/id"),
        (TWO, ["a", 1, True], "a list with a value for each of /tenantId, /owner/id"),
        (ONE, 2**53, r"below 2\^53"),
        (ONE, -(2**53), r"below 2\^53"),
        (ONE, math.inf, r"below 2\^53"),
        (ONE, "", "not empty"),
        (TWO, ["a", None], "not empty"),
    ],
)
def test_what_is_no_key_of_the_container_is_refused_with_the_form_of_one(
    paths: PartitionKeyPaths, given: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        paths.key(given)
    assert paths.valid(given) is None


@pytest.mark.parametrize("number", [2**53 - 1, 1 - 2**53, 0, -1.5])
def test_a_number_that_every_reader_of_json_reads_alike_is_a_key(number: float) -> None:
    assert ONE.key(number) == number


@pytest.mark.parametrize(("length", "is_one"), [(2048, True), (2049, False)])
def test_of_a_key_that_is_longer_than_any_can_be_no_store_takes_a_part(length: int, *, is_one: bool) -> None:
    text = "a" * length
    assert PARTITION_KEY.storable({"partitionKey": text}) == (text if is_one else None)


def test_no_two_keys_have_one_text() -> None:
    keys: list[Any] = ["1", 1, True, "true", "\0", 1.5, "1.5", ("a", "b"), ("ab", ""), ("a", 1), ("a", True)]
    assert len({ONE.text(key) for key in keys}) == len({ONE.name(key) for key in keys}) == len(keys)
    assert {len(ONE.name(key)) for key in keys} == {32}
    assert ONE.text(1) == ONE.text(1.0), "JSON has one number"
    assert PARTITION_KEY.text("a") == "a"


@pytest.mark.parametrize("paths", [(), ("tenantId",), ("/",), ("/a//b",), ('/"a"',), ("/a", "/a"), ("/a", "/a/b"),
                                   ("/a", "/b", "/c", "/d")])  # fmt: skip
def test_what_is_no_path_is_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="path"):
        PartitionKeyPaths(paths)


@pytest.mark.parametrize("path", ["/id", "/type", "/data/tenantId", "/ttl", "/aggregateId", "/_etag"])
def test_a_path_that_an_event_document_needs_for_itself_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no event can be stored"):
        Service("bookings", own=OwnContainer(path, {"booking": None}))
    with pytest.raises(ValueError, match="no event can be stored"):
        Service("bookings", own=OwnContainer(["/tenantId", path], {"booking": None}))


def test_a_value_is_put_where_it_is_read() -> None:
    item: dict[str, Any] = {"meta": {"by": "x"}}
    put(item, "/meta/last", 1)
    assert (item, at(item, "/meta/last")) == ({"meta": {"by": "x", "last": 1}}, 1)
    assert at({"meta": 3}, "/meta/last") is None
    with pytest.raises(ValueError, match="no object"):
        put({"meta": 3}, "/meta/last", 1)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (lambda: OwnContainer("/tenantId", {}), "names no aggregate"),
        (lambda: OwnContainer("/tenantId", {"booking": "lastSequence"}), "no path of a property"),
        (lambda: OwnContainer("/tenantId", {"booking": "/id"}), "cannot hold a sequence"),
        (lambda: OwnContainer("/tenantId", {"booking": None}, default_ttl=0), "default_ttl"),
    ],
)
def test_a_declaration_that_cannot_hold_is_refused_at_once(own: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Service("bookings", own=own())


def test_own_documents_and_aggregates_are_two_services() -> None:
    kinds: list[type[Aggregate[Any]]] = [Contact]
    with pytest.raises(ValueError, match=r"declare two services.* goes into documents of the team's own"):
        Service("bookings", aggregates=kinds, own=OwnContainer("/tenantId", {"booking": None}))


def bookings(**more: Any) -> Service:
    own = OwnContainer(["/tenantId", "/bookingId"], {"booking": "/lastSequence", "late-note": None}, **more)
    return Service("bookings", names=Names(database="d", container="bookings", topic="t"), own=own)


@pytest.mark.parametrize(
    ("of", "source", "message"),
    [
        ("booking", None, r"say which they are, with source=OwnDocuments"),
        ("late-note", OwnDocuments({"/type": "note"}), "without a sequence no document says"),
        ("unknown", OwnDocuments({"/type": "unknown"}), "without a sequence no document says"),
        ("booking", OwnDocuments({}), "events would be taken"),
        ("booking", OwnDocuments({"/type": "domainEvent"}), "events would be taken"),
        ("booking", OwnDocuments({"/aggregateType": "booking", "/tenantId": "a"}), "events would be taken"),
        ("booking", OwnDocuments({"kind": "booking"}), "no path of a property"),
        ("booking", OwnDocuments({"/kind": "booking"}, id="number"), "no path of a property"),
        ("booking", OwnDocuments({"/kind": "booking"}, deleted="/over/"), "no path of a property"),
    ],
)
def test_a_read_model_needs_documents_that_it_can_be_healed_from(
    of: str, source: OwnDocuments | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bookings().read_model("b", of=of, form=FORM, state_of=entry_of, project=project, source=source)


def test_the_librarys_own_aggregates_need_no_source() -> None:
    kinds: list[type[Aggregate[Any]]] = [Contact]
    with pytest.raises(ValueError, match="finds what it has stored"):
        Service("contacts", aggregates=kinds).read_model(
            "b",
            of=Contact,
            form=FORM,
            state_of=entry_of,
            project=project,
            source=OwnDocuments({"/type": "x"}),
        )


def test_preflight_asks_for_the_index_by_which_the_documents_are_found() -> None:
    service = bookings()
    source = OwnDocuments({"/kind": "booking"}, id="/number")
    service.read_model("board", of="booking", form=FORM, state_of=entry_of, project=project, source=source)
    feed, *others = containers.needed(service.settings(NOWHERE), service)
    assert feed.queried == ("/type", "/aggregateType", "/aggregateId", "/number", "/kind")
    assert {each.name for each in others} >= {"bookings-set-aside", "board"}


async def test_without_a_declaration_there_is_no_transaction() -> None:
    outbox = Service("s", names=Names(database="d", container="c", topic="t")).wire(NOWHERE).outbox
    async with outbox.resources:
        with pytest.raises(ValueError, match="no OwnContainer"):
            outbox.transaction("a")


def test_operators_call_the_aggregates_by_their_types() -> None:
    service = bookings()

    @service.effect("booking-mails", of="booking")
    async def tell(event: Event) -> None:
        """The effects of a service with its own documents are like any."""

    names = {function.get_function_name() for function in app(service).get_functions()}
    assert {"relay", "list_events", "list_parked", "watch_relay", "tend_parked", "unrouted"} <= names


@pytest.mark.parametrize(
    ("state", "more", "problems"),
    [
        (ContainerState(("/tenantId", "/bookingId"), -1, IndexingPolicy(True, ("/*",), ())), {}, []),
        (ContainerState(("/tenantId", "/bookingId"), 60, IndexingPolicy(True, ("/*",), ())), {"default_ttl": 60}, []),
        (ContainerState(("/bookingId", "/tenantId"), -1, IndexingPolicy(True, ("/*",), ())), {},
         ["the partition key is /bookingId, /tenantId, not /tenantId, /bookingId"]),
        (ContainerState(("/tenantId", "/bookingId"), None, IndexingPolicy(True, ("/*",), ())), {}, ["TTL is off"]),
        (ContainerState(("/tenantId", "/bookingId"), 60, IndexingPolicy(True, ("/*",), ())), {},
         ["the default TTL is 60, and the service's OwnContainer says -1"]),
        (ContainerState(("/tenantId", "/bookingId"), -1, IndexingPolicy(True, ("/type/?",), ("/*",))), {},
         ["/aggregateType/?, /aggregateId/? is queried and not indexed"]),
        (ContainerState(("/tenantId", "/bookingId"), -1, IndexingPolicy(True, ("/*",), ()), (("/email", "/city"),)), {},
         ["/email, /city is a unique key"]),
    ],
)  # fmt: skip
def test_preflight_looks_at_the_container_as_it_was_declared(
    state: ContainerState, more: dict[str, Any], problems: list[str]
) -> None:
    service = bookings(**more)
    need, *others = containers.needed(service.settings(NOWHERE), service)
    assert [each.name for each in others] == ["bookings-leases", "bookings-parked"]
    assert need.partition_key == ["/tenantId", "/bookingId"]
    found = [str(each) for each in cosmos_rules.judge(need, state, "d") if not str(each).startswith("ok")]
    assert len(found) == len(problems)
    assert all(problem in each for problem, each in zip(problems, found, strict=True))


WRITTEN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("unknown", ["x" * 1024, "a\nb", 7, None, {1, 2}])
def test_an_id_that_no_line_can_show_has_a_stand_in_of_its_own(unknown: object) -> None:
    assert document_id({"id": unknown}).startswith("unreadable-")
    assert document_id({"id": unknown}) == document_id({"id": unknown})


def test_a_document_of_one_second_expires_and_of_none_does_not() -> None:
    assert lifetime({"ttl": 1, "_ts": 0}) == Lifetime(0, 1)
    assert lifetime({"ttl": 0, "_ts": 5}) is None
    assert lifetime({"ttl": -1, "_ts": 5}) is None

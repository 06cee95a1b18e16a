"""The rules for a contact's fields, and the name of each wrong field in the error."""

from decimal import Decimal
from typing import Annotated, Any

import pytest

from cosmos_outbox import WireModel, input_rule
from cosmos_outbox.http.components import Components, SchemaForm
from cosmos_outbox.http.problems import InvalidRequest
from cosmos_outbox.http.validation import patched, replaced, validated
from domain.values import ContactDetails
from tests.support.contacts import DETAILS_JSON


def wrong_fields(data: Any) -> set[str]:
    with pytest.raises(InvalidRequest) as caught:
        validated(ContactDetails, data)
    return {error.field for error in caught.value.errors}


def changed(**fields: Any) -> dict[str, Any]:
    return DETAILS_JSON | fields


def test_only_names_and_email_are_required() -> None:
    details = validated(ContactDetails, {"name": {"firstName": "J", "lastName": "D"}, "email": "j@d.org"})
    assert details.description is None
    assert details.company is None


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ([], {"body"}),
        ("text", {"body"}),
        ({}, {"name", "email"}),
        (changed(name=None), {"name"}),
        (changed(name="John"), {"name"}),
        (changed(name={"firstName": "John"}), {"name.lastName"}),
        (changed(name={"firstName": " ", "lastName": "\t"}), {"name.firstName", "name.lastName"}),
        (changed(name={"firstName": "x" * 101, "lastName": "Doe"}), {"name.firstName"}),
        (changed(name={"firstName": 7, "lastName": True}), {"name.firstName", "name.lastName"}),
        (changed(name={"firstName": "J", "lastName": "D", "middle": "Q"}), {"name.middle"}),
        (changed(name={"first_name": "J", "last_name": "D"}),
         {"name.firstName", "name.lastName", "name.first_name", "name.last_name"}),
        (changed(email="nobody"), {"email"}),
        (changed(email="a@b"), {"email"}),
        (changed(email="John <john@contoso.com>"), {"email"}),
        (changed(email="a@b.org" * 50), {"email"}),
        (changed(email=f"{'a' * 65}@contoso.com"), {"email"}),
        (changed(email=None), {"email"}),
        (changed(description="x" * 501), {"description"}),
        (changed(description=["x"]), {"description"}),
        (changed(company={}), {"company.companyName"}),
        (changed(company={"companyName": "x" * 251}), {"company.companyName"}),
        (changed(company={"companyName": " "}), {"company.companyName"}),
        (changed(company={"companyName": "C", "city": "x" * 251}), {"company.city"}),
        (changed(name={"firstName": "\u200b\ufeff", "lastName": "\u2060"}), {"name.firstName", "name.lastName"}),
        (changed(name={"firstName": "J\u0000n", "lastName": "D\u001be"}), {"name.firstName", "name.lastName"}),
        (changed(name={"firstName": "Jo\nhn", "lastName": "D\toe"}), {"name.firstName", "name.lastName"}),
        (changed(name={"firstName": "Jo\u2028hn", "lastName": "D\r"}), {"name.firstName", "name.lastName"}),
        (changed(name={"firstName": "\u202enhoJ", "lastName": "\u2067D"}), {"name.firstName", "name.lastName"}),
        (changed(company={"companyName": "C\n", "street": "\u202aS\u202c", "city": "O\u2029"}),
         {"company.companyName", "company.street", "company.city"}),
        (changed(description="bell \u0007"), {"description"}),
        (changed(company={"companyName": "C\u0008", "city": "\u0085"}), {"company.companyName", "company.city"}),
        (changed(id="x", deleted=True, lastSequence=9), {"id", "deleted", "lastSequence"}),
    ],
)  # fmt: skip
def test_each_mistake_is_named_by_its_place(data: Any, fields: set[str]) -> None:
    assert wrong_fields(data) == fields


@pytest.mark.parametrize("length", [1, 100])
def test_names_may_be_up_to_a_hundred_characters(length: int) -> None:
    data = changed(name={"firstName": "ø" * length, "lastName": "D"}, description="d" * 500)
    assert validated(ContactDetails, data).name.first_name == "ø" * length


def test_no_input_is_repeated_in_the_error() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validated(ContactDetails, changed(email="very.secret.person", name={"firstName": 424242}))
    assert "secret" not in str(caught.value)
    assert "424242" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_lines_tabs_and_every_script_may_stand_in_a_text() -> None:
    data = changed(
        name={"firstName": "Zoë-李", "lastName": "O'Neil"}, description="line one\n\tline two\r\n👩‍👧"
    )
    assert validated(ContactDetails, data).description == data["description"]


@pytest.mark.parametrize("name", ["شهرام", "נועה", "می‌خواهم", "ශ්‍රී", "\u200fאב\u200e", "d'Été\u00a0Œ"])
def test_a_name_of_any_script_keeps_its_joiners_and_direction_marks(name: str) -> None:
    assert (
        validated(ContactDetails, changed(name={"firstName": name, "lastName": "D"})).name.first_name == name
    )


@pytest.mark.parametrize("blank", [
    "", "\u3000\u00a0", "\u0301", "\u0903", "\u20dd", "\u3164", "\u115f\u1160", "\uffa0", "\u2800", "\u034f", "\u180e",
    "\u17b4", "\ufe0f", "\u2065", "\ufff0", "\U0001d159", "\U0001d173", "\U00013441", "\U000e0020", "\U000e01f0",
    "\u0301 \u3164",
])  # fmt: skip
def test_a_name_that_shows_no_character_is_blank(blank: str) -> None:
    data = changed(name={"firstName": blank, "lastName": "D"}, company={"companyName": blank})
    assert wrong_fields(data) == {"name.firstName", "company.companyName"}


@pytest.mark.parametrize("name", ["\u2801", "李", "\U00031350", "a\u0301", "ก\u0e47", "9", "\ue000"])
def test_a_name_that_shows_one_character_is_none_that_is_blank(name: str) -> None:
    validated(ContactDetails, changed(name={"firstName": name, "lastName": "D"}))


def test_texts_of_one_line_are_trimmed_and_composed() -> None:
    data = changed(
        name={"firstName": " Zoe\u0308\u00a0", "lastName": "x" * 99 + "e\u0301  "},
        company={"companyName": "\u3000C\u2003", "city": " A\u030angstro\u0308m "},
        email=f"{'a' * 64}@contoso.com",
    )
    details = validated(ContactDetails, data)
    assert (details.name.first_name, details.name.last_name) == ("Zo\u00eb", "x" * 99 + "\u00e9")
    assert details.company is not None
    assert (details.company.company_name, details.company.city) == ("C", "\u00c5ngstr\u00f6m")


class Room(WireModel):
    seat_count: int
    room_name: Annotated[str, input_rule(str.strip)]


@pytest.mark.parametrize("change", [replaced, patched])
def test_a_field_is_set_by_its_wire_name_and_normalised_by_its_rules(change: Any) -> None:
    shown = {"seatCount": 1, "roomName": "Hall"}
    room = change(Room, Room(seat_count=1, room_name="Hall"), shown, {"seatCount": 2, "roomName": " Foyer "})
    assert room == Room.model_construct(seat_count=2, room_name="Foyer")


class Line(WireModel):
    price: Decimal | None = None


class Invoice(WireModel):
    total: Decimal
    rate: float | None = None
    lines: tuple[Line, ...] = ()


@pytest.mark.parametrize("sent", ["12.50", "0.1234567890123456789", 12, "-1e2"])
def test_a_decimal_is_taken_exactly_from_a_text_or_a_whole_number(sent: str | int) -> None:
    assert validated(Invoice, {"total": sent}).total == Decimal(sent)


def test_a_decimal_is_not_taken_from_a_number_that_json_rounds() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validated(Invoice, {"total": 12.5, "rate": 0.25, "lines": [{"price": "1"}, {"price": 0.1}]})
    assert [(each.field, each.code) for each in caught.value.errors] == [
        ("total", "wrong_type"),
        ("lines.1.price", "wrong_type"),
    ]
    assert caught.value.errors[0].reason == 'must be a whole number, or a text such as "12.50"'


def test_the_document_says_how_a_decimal_is_sent() -> None:
    components = Components()
    components.of(Invoice, SchemaForm.INPUT)
    total = components.schemas["InvoiceInput"]["properties"]["total"]
    assert [each["type"] for each in total["anyOf"]] == ["integer", "string"]

"""Every property of a contact is whole: its event, its removal, its rule in the API, its place in old documents.

The tests go by the fields of ``ContactDetails``: whose failures name, for a new property, what else the property needs.
"""

import inspect
import re
from typing import Any

import pytest
from pydantic.alias_generators import to_camel, to_pascal

from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import Company, ContactDetails, ContactState, Name
from tests.support.contacts import CONTOSO, LATER, NOON, stored
from tests.support.paths import ROOT

BEFORE = ContactDetails(
    name=Name(first_name="John", last_name="Doe"),
    email="johndoe@contoso.com",
    description="met in Oslo",
    company=CONTOSO,
)
AFTER = ContactDetails(
    name=Name(first_name="Jane", last_name="Roe"),
    email="jane@fabrikam.com",
    description="moved",
    company=Company(company_name="Fabrikam"),
)
"""Every property of a contact, with another value than in BEFORE."""

PROPERTIES = list(ContactDetails.model_fields)
OPTIONAL = [name for name, field in ContactDetails.model_fields.items() if not field.is_required()]
CHANGES = [
    name
    for name, method in inspect.getmembers(Contact, inspect.isfunction)
    if not name.startswith("_") and name in vars(Contact) and "at" in inspect.signature(method).parameters
]
"""The methods that change a contact."""


def revised(name: str, value: Any) -> list[dict[str, Any]]:
    """The events of a stored contact of which one property becomes another value."""
    contact = stored(Contact.create(BEFORE, at=NOON))
    contact.revise(BEFORE.model_copy(update={name: value}), at=LATER)
    changes = contact.changes()
    return [event.model_dump() for event in changes.events] if changes else []


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_that_changes_raises_its_event(name: str) -> None:
    value = getattr(AFTER, name)
    assert None not in (value, getattr(BEFORE, name)), (
        f"give {name} a value in BEFORE and another one in AFTER"
    )
    assert value != getattr(BEFORE, name), f"give {name} another value in AFTER than in BEFORE"

    events = revised(name, value)

    action = f"Contact{to_pascal(name)}UpdatedEvent"
    assert [event["action"] for event in events] == [action], (
        f"a new {name} must raise {action}: set {name} in Contact.revise, and its event in changed_events"
    )
    expected = value.model_dump() if isinstance(value, Name | Company) else value
    assert events[0].get(name) == expected, f"{action} must carry the new {name}: look at its class"


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_property_that_is_removed_raises_its_event(name: str) -> None:
    events = revised(name, None)
    assert [event.get(name, "-") for event in events] == [None], (
        f"the event of {name} must carry a removal as None"
    )


@pytest.mark.parametrize("name", CHANGES)
def test_a_deleted_contact_refuses_every_change(name: str) -> None:
    contact = stored(Contact.create(BEFORE, at=NOON))
    contact.delete(at=LATER)
    change = getattr(stored(contact), name)
    values = [AFTER for parameter in inspect.signature(change).parameters if parameter != "at"]
    with pytest.raises(ContactDeleted):
        change(*values, at=LATER)


def test_a_document_that_is_older_than_the_optional_properties_is_read() -> None:
    oldest = {
        "id": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
        "name": {"firstName": "John", "lastName": "Doe"},
        "email": "johndoe@contoso.com",
        "createdAt": "2026-03-01T12:00:00Z",
        "lastSequence": 1,
    }
    state = ContactState.model_validate(oldest)
    assert {getattr(state, name) for name in OPTIONAL} == {None}


def rules() -> dict[str, str]:
    """The table "A contact" of docs/use/api.md: the first cell with the fields, the second one with their rule."""
    page = (ROOT / "docs" / "use" / "api.md").read_text()
    [section] = re.findall(r"^## A contact\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE))


def texts(schema: dict[str, Any], definitions: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Each text in a JSON schema, with the name of its field; inside of objects and of what may be null too."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    inner = [(path, each) for each in schema.get("anyOf", [])] + list(schema.get("properties", {}).items())
    found = [(path, schema)] if schema.get("type") == "string" else []
    return found + [text for name, each in inner for text in texts(each, definitions, name)]


@pytest.mark.parametrize("name", PROPERTIES)
def test_the_api_page_has_the_rule_of_a_property(name: str) -> None:
    schema = ContactDetails.model_json_schema()
    wire = to_camel(name)
    rows = [f"{cell} {rule}" for cell, rule in rules().items() if re.search(rf"`{wire}[`.]", cell)]
    assert len(rows) == 1, f'docs/use/api.md, table "A contact": add a line for `{wire}`'
    [row] = rows
    assert ("optional" if name in OPTIONAL else "required") in row
    for field, text in texts(schema["properties"][wire], schema["$defs"], wire):
        assert re.search(rf"\b{field}`", row), f"docs/use/api.md: the line of `{wire}` must name `{field}`"
        assert "maxLength" in text, f"domain/values.py: give {field} a largest length"
        assert f"at most {text['maxLength']} characters" in row, (
            f"docs/use/api.md: the line of `{wire}` must say that `{field}` has at most {text['maxLength']} characters"
        )

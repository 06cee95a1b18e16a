"""An entry's form has a number: who changes what an entry holds raises it, and writes the new form here."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from cosmos_outbox.inbox.entry import EntrySchema
from examples.orders import board
from infra import directory


@pytest.mark.parametrize(
    ("form", "number", "fields", "texts"),
    [
        (
            directory.FORM,
            1,
            ["first_name", "last_name", "email", "company", "city", "country", "created_at", "modified_at"],
            ["name", "lastName", "email", "company", "city", "country", "created", "changed"],
        ),
        (board.FORM, 1, ["customer", "status", "total"], ["customer", "status"]),
    ],
    ids=["directory", "board"],
)
def test_a_form_that_changes_gets_another_number(
    form: EntrySchema[Any], number: int, fields: list[str], texts: list[str]
) -> None:
    assert (form.version, [*form.model.model_fields], [*form.search]) == (number, fields, texts), (
        "raise the form's version: entries of the version before are then written again"
    )


def test_a_form_that_names_no_number_goes_on_with_what_was_stored_of_it() -> None:
    form = EntrySchema(directory.FORM.model, search={}, sorted_by=[])
    assert form.is_of({"form": 1})
    assert not form.is_of({"form": 0})


@pytest.mark.parametrize("data", [{}, None, {"firstName": 7}, []])
def test_a_state_that_cannot_be_read_is_none(data: object) -> None:
    assert directory.FORM.read({"data": data}) is None
    assert directory.FORM.read({}) is None


class Guest(BaseModel):
    last_name: str = Field(alias="lastName")


def test_a_state_is_stored_by_the_names_that_it_is_read_by() -> None:
    form = EntrySchema(Guest, search={}, sorted_by=[])
    stored = form.write(Guest(lastName="Ada"))
    assert stored == {"lastName": "Ada"}
    assert form.read({"data": stored}) == Guest(lastName="Ada")

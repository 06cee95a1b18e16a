"""Value objects: immutable, equal by value, and never in an invalid state.

Names are snake_case in Python and camelCase on the wire.
"""

import unicodedata
from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from pydantic import Field
from pydantic.fields import FieldInfo

from cosmos_outbox import AggregateState, Timestamp, WireModel, input_rule

NAME_LENGTH = 100
COMPANY_LENGTH = 250
DESCRIPTION_LENGTH = 500
EMAIL_LENGTH = 254
"""The longest address that SMTP can carry (RFC 5321, 4.5.3.1.3, without the angle brackets)."""


Text = Callable[[str], str]
"""Gives a text back, or raises ValueError with what would be right."""


def _not_blank(text: str) -> str:
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise ValueError("must not be blank")
    return text


def _readable(text: str) -> str:
    """A line break and a tab may stand in a longer text; any other control character is an accident or an attack."""
    if any(unicodedata.category(character) == "Cc" and character not in "\n\r\t" for character in text):
        raise ValueError("must not have control characters")
    return text


_EMBEDDING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes (Unicode Annex 9) of what turns or sets apart all text that follows, up to the next line."""


def _one_line(text: str) -> str:
    """A text that is shown in a line of its own, or within another, neither breaks that line nor turns it around.

    What single words of many scripts are written with, such as joiners and direction marks, may stand in it.
    """
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise ValueError("must not have control characters, line breaks or tabs")
    if any(unicodedata.bidirectional(character) in _EMBEDDING for character in text):
        raise ValueError("must not have characters that change the direction of the text around them")
    return text


def _at_most(length: int) -> Text:
    def check(text: str) -> str:
        if len(text) > length:
            raise ValueError(f"must have at most {length} characters")
        return text

    return check


def _real_address(text: str) -> str:
    # Slow to import, and most processes of the app, such as the relay's, are never given an address.
    from email_validator import EmailNotValidError, validate_email  # noqa: PLC0415

    try:  # the syntax only: a look-up in the DNS would be I/O
        return validate_email(text, check_deliverability=False).normalized
    except EmailNotValidError as problem:
        raise ValueError(str(problem)) from None


def _limit(length: int) -> FieldInfo:
    """The largest length as JSON Schema tells it."""
    limit: FieldInfo = Field(json_schema_extra={"maxLength": length})
    return limit


ShortText = Annotated[
    str, _limit(NAME_LENGTH), input_rule(_at_most(NAME_LENGTH)), input_rule(_one_line), input_rule(_not_blank)
]
CompanyText = Annotated[
    str, _limit(COMPANY_LENGTH), input_rule(_at_most(COMPANY_LENGTH)), input_rule(_one_line)
]
CompanyName = Annotated[CompanyText, input_rule(_not_blank)]
Email = Annotated[str, _limit(EMAIL_LENGTH), input_rule(_at_most(EMAIL_LENGTH)), input_rule(_real_address)]
Description = Annotated[
    str, _limit(DESCRIPTION_LENGTH), input_rule(_at_most(DESCRIPTION_LENGTH)), input_rule(_readable)
]


class Name(WireModel):
    """A person's name; both parts are required."""

    first_name: ShortText
    last_name: ShortText


class Company(WireModel):
    """Where a person works. Only the company's name is required."""

    company_name: CompanyName
    street: CompanyText | None = None
    house_number: CompanyText | None = None
    postal_code: CompanyText | None = None
    city: CompanyText | None = None
    country: CompanyText | None = None


class ContactDetails(WireModel):
    """The part of a contact that a caller decides; the service decides the other fields."""

    name: Name
    email: Email
    description: Description | None = None
    company: Company | None = None


class ContactState(ContactDetails, AggregateState):
    """A contact as it is stored."""

    id: UUID
    created_at: Timestamp
    modified_at: Timestamp | None = None
    deleted_at: Timestamp | None = None
    deleted: bool = False

"""Value objects: immutable, equal by value, and never in an invalid state.

Names are snake_case in Python and camelCase on the wire.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from cosmos_outbox import AggregateState, Timestamp, WireModel, input_rule

NAME_LENGTH = 100
COMPANY_LENGTH = 250
DESCRIPTION_LENGTH = 500
EMAIL_LENGTH = 254
"""The longest address that SMTP can carry (RFC 5321, 4.5.3.1.3, without the angle brackets)."""


Text = Callable[[str], str]
"""Returns a text, normalised, or raises ValueError with the rule."""


_BREAKS = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
"""Control characters and line breaks, as in a regular expression."""
_TURNS = r"\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of the text after them, up to the next line (Unicode Annex 9)."""
_SHOWS_NOTHING = {"Cc", "Cf", "Zl", "Zp", "Zs", "Mn", "Mc", "Me"}
"""Categories of characters that are invisible, or visible only on another character."""
_BLANKS = re.compile(
    r"[\u115f\u1160\u2065\u2800\u3164\uffa0\ufff0-\ufff8\U0001d159\U00013441\U00013442\U000e0000-\U000e0fff]"
)
"""Fillers and blank symbols of other categories, and Default_Ignorable code points that are not assigned."""
ONE_LINE = rf"^[^{_BREAKS}{_TURNS}]*$"
VISIBLE_LINE = rf"^[^{_BREAKS}{_TURNS}]*[^{_BREAKS}{_TURNS}\s][^{_BREAKS}{_TURNS}]*$"
READABLE = r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]*$"
"""The rules below as patterns for the API's document; of blank characters they cover only white space."""


def _not_blank(text: str) -> str:
    if all(unicodedata.category(each) in _SHOWS_NOTHING or _BLANKS.match(each) for each in text):
        raise PydanticCustomError("blank", "must not be blank")
    return text


def _tidy(text: str) -> str:
    """Strips and normalises a text, so that the same text typed on another keyboard is the same value."""
    return unicodedata.normalize("NFC", text.strip())


def _readable(text: str) -> str:
    """Allows line breaks and tabs in a longer text; any other control character is an accident or an attack."""
    if not re.fullmatch(READABLE, text):
        raise PydanticCustomError("control_character", "must not have control characters")
    return text


def _one_line(text: str) -> str:
    """Refuses characters that would break the line in which a text is shown, or reverse its direction.

    Characters that words of many scripts need, such as joiners and direction marks, are allowed.
    """
    if re.search(f"[{_BREAKS}]", text):
        raise PydanticCustomError(
            "control_character", "must not have control characters, line breaks or tabs"
        )
    if re.search(f"[{_TURNS}]", text):
        raise PydanticCustomError(
            "direction", "must not have characters that change the direction of the text around them"
        )
    return text


def _at_most(length: int) -> Text:
    def check(text: str) -> str:
        if len(text) > length:
            raise PydanticCustomError("too_long", "must have at most {length} characters", {"length": length})
        return text

    return check


def _real_address(text: str) -> str:
    # Imported here: it is slow, and most processes of the app, such as the relay's, never validate an address.
    from email_validator import EmailNotValidError, validate_email  # noqa: PLC0415

    try:  # only the syntax: a DNS lookup would be I/O
        return validate_email(text, check_deliverability=False, strict=True).normalized
    except EmailNotValidError as problem:
        raise PydanticCustomError("email", "{reason}", {"reason": str(problem)}) from None


def _described(length: int, **more: str) -> FieldInfo:
    """Returns the rules as JSON Schema describes them."""
    limits: FieldInfo = Field(json_schema_extra={"maxLength": length, **more})
    return limits


_ADDRESS = "An address that mail can be sent to, so none below .test or .local."

ShortText = Annotated[
    str,
    _described(NAME_LENGTH, pattern=VISIBLE_LINE),
    input_rule(_one_line),
    input_rule(_tidy),
    input_rule(_at_most(NAME_LENGTH)),
    input_rule(_not_blank),
]
CompanyText = Annotated[
    str,
    _described(COMPANY_LENGTH, pattern=ONE_LINE),
    input_rule(_one_line),
    input_rule(_tidy),
    input_rule(_at_most(COMPANY_LENGTH)),
]
CompanyName = Annotated[CompanyText, _described(COMPANY_LENGTH, pattern=VISIBLE_LINE), input_rule(_not_blank)]
Email = Annotated[
    str,
    _described(EMAIL_LENGTH, format="email", description=_ADDRESS),
    input_rule(_at_most(EMAIL_LENGTH)),
    input_rule(_real_address),
]
Description = Annotated[
    str,
    _described(DESCRIPTION_LENGTH, pattern=READABLE),
    input_rule(_at_most(DESCRIPTION_LENGTH)),
    input_rule(_readable),
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

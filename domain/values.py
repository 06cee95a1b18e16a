"""Value objects: immutable, equal by value, and never in an invalid state.

Names are snake_case in Python and camelCase on the wire; unknown fields are refused.
"""

from typing import Annotated
from uuid import UUID

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, StringConstraints

from outbox.aggregate import AggregateState
from outbox.event import Timestamp, WireModel

NAME_LENGTH = 100
COMPANY_LENGTH = 250
DESCRIPTION_LENGTH = 500
EMAIL_LENGTH = 254
"""The longest address that SMTP can carry (RFC 5321, 4.5.3.1.3, without the angle brackets)."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _real_address(text: str) -> str:
    try:  # the syntax only: a look-up in the DNS would be I/O
        return validate_email(text, check_deliverability=False).normalized
    except EmailNotValidError as problem:
        raise ValueError(str(problem)) from None


ShortText = Annotated[str, StringConstraints(max_length=NAME_LENGTH), AfterValidator(_not_blank)]
CompanyText = Annotated[str, StringConstraints(max_length=COMPANY_LENGTH)]
CompanyName = Annotated[CompanyText, AfterValidator(_not_blank)]
Email = Annotated[str, StringConstraints(max_length=EMAIL_LENGTH), AfterValidator(_real_address)]
Description = Annotated[str, StringConstraints(max_length=DESCRIPTION_LENGTH)]


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

"""Models of the directory's request and response in the OpenAPI document; tests compare them with real answers.

Pydantic builds them for the document alone, not in each new process.
"""

from typing import Annotated

import pydantic

from application.directory import DirectoryEntry, Field
from cosmos_outbox import Timestamp, WireModel
from infra.directory import FORM
from infra.directory_http import LONGEST

NO_SPACE = r"[^\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""A character that is no space to a search: regex engines differ on the characters of a class such as ``\\S``."""

_Text = Annotated[str, pydantic.Field(min_length=1, max_length=LONGEST, pattern=NO_SPACE)]


class DirectoryQuery(WireModel, defer_build=True):
    """The query, beside the page."""

    name: _Text = ""
    email: _Text = ""
    company: _Text = ""
    city: _Text = ""
    country: _Text = ""
    sort: Annotated[str, pydantic.Field(json_schema_extra={"enum": [*FORM.orders]})] = Field.NAME.value
    written: Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9-]{1,128}:[0-9]{1,15}$")] = ""


class DirectoryItem(DirectoryEntry, defer_build=True):
    """An entry with what the directory knows of it."""

    id: str
    sequence: int
    applied_at: Timestamp
    late_seconds: float | None
    blocked_since: Timestamp | None


class DirectoryPage(WireModel, defer_build=True):
    """A page of them."""

    items: list[DirectoryItem]
    continuation_token: str | None
    next_link: str | None
    behind: bool | None

"""What each call takes and gives, by the name of its function; tests hold each line to the running app."""

from dataclasses import dataclass, field
from typing import Any

from tools.openapi.schemas import ref


@dataclass(frozen=True)
class Answer:
    """An answer that is no error; ``schema`` None: it has no body."""

    status: int
    schema: str | None
    headers: tuple[str, ...] = ()
    media_type: str = "application/json"

    def told(self) -> dict[str, Any]:
        """The answer in the document."""
        headers = ("x-correlation-id", "Cache-Control", *self.headers)
        found: dict[str, Any] = {
            "description": _DESCRIPTIONS[self.status],
            "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        }
        if self.media_type == "text/html":
            found["content"] = {self.media_type: {}}
        elif self.schema:
            found["content"] = {self.media_type: {"schema": ref(self.schema)}}
        return found


@dataclass(frozen=True)
class Call:
    """One call; ``problems``: the statuses of its own errors beside 400, which every call may answer."""

    answers: tuple[Answer, ...]
    problems: tuple[int, ...] = ()
    body: str | None = None
    media_types: tuple[str, ...] = ("application/json",)
    headers: tuple[str, ...] = ()
    uses_store: bool = field(default=True)
    """Then it may be throttled, and the store may be away."""


_DESCRIPTIONS = {200: "OK", 201: "Created", 204: "Done", 304: "The caller has this version"}
_DONE = Answer(204, None)


def _gives(schema: str, *problems: int) -> Call:
    return Call((Answer(200, schema),), problems)


_CONTACT = Answer(200, "Contact", ("ETag",))
_CHANGED = Answer(200, "ChangedContact", ("ETag", "Idempotency-Replayed"))
_CONDITIONS = ("traceparent", "tracestate", "If-Match", "Idempotency-Key")
_DISCARD = Call((_DONE,), (404, 409, 413, 415), body="Discard")

CALLS: dict[str, Call] = {
    "create_contact": Call(
        (Answer(201, "Contact", ("ETag", "Location", "Idempotency-Replayed")),), (409, 410, 413, 415, 422),
        body="NewContact", headers=("traceparent", "tracestate", "Idempotency-Key"),
    ),
    "list_contacts": _gives("ContactPage"),
    "get_contact": Call(
        (_CONTACT, Answer(304, None, ("ETag",))), (404,), headers=("If-None-Match",)
    ),
    "patch_contact": Call(
        (_CHANGED,), (404, 409, 412, 413, 415, 422), body="ContactPatch", headers=_CONDITIONS,
        media_types=("application/merge-patch+json", "application/json"),
    ),
    "put_contact": Call(
        (_CHANGED,), (404, 409, 412, 413, 415, 422), body="WholeContact", headers=_CONDITIONS
    ),
    "delete_contact": Call(
        (Answer(204, None, ("Idempotency-Replayed",)),), (404, 409, 412, 422), headers=_CONDITIONS
    ),
    "search_directory": _gives("DirectoryPage"),
    "health": _gives("Health"),
    "get_operations_page": Call(
        (Answer(200, None, ("ETag",), "text/html"), Answer(304, None, ("ETag",))), headers=("If-None-Match",),
        uses_store=False,
    ),
    "get_dependencies": Call((Answer(200, "Dependencies"),), uses_store=False),
    "get_instance": Call((Answer(200, "Instance"),), uses_store=False),
    "get_relay": _gives("Relay"),
    "get_history": _gives("History", 404),
    "list_parked": _gives("ParkedPage"),
    "get_parked": _gives("Parked", 404),
    "discard_parked": _DISCARD,
    "replay_parked": _gives("Replayed", 404, 409),
    "get_subscriber": _gives("Subscriber"),
    "list_set_aside": _gives("SetAsidePage"),
    "get_set_aside": _gives("SetAside", 404),
    "apply_set_aside": Call((_DONE,), (404, 409)),
    "discard_set_aside": _DISCARD,
    "collect_dead_letters": _gives("Collected"),
}  # fmt: skip

"""The schemas of the answer to an error, which every API has alike."""

from cosmos_outbox.http.components import Schema, ref
from cosmos_outbox.http.errors import LONGEST_NAME, LONGEST_REASON, MOST_ERRORS

PROBLEM: Schema = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string", "format": "uri-reference", "examples": ["/api/problems/invalid-request"],
            "description": "The kind of problem. It leads to a page that tells what it means and what to do.",
        },
        "title": {"type": "string", "description": "One for each type.", "examples": ["Invalid request"]},
        "status": {"type": "integer", "examples": [400]},
        "detail": {"type": "string", "description": "What is wrong this time, for people."},
        "errors": {"type": "array", "maxItems": MOST_ERRORS, "items": ref("FieldProblem")},
        "correlationId": {"type": ["string", "null"], "description": "What the service's log has it under."},
    },
    "required": ["type", "title", "status", "detail", "errors", "correlationId"],
}  # fmt: skip
FIELD_PROBLEM: Schema = {
    "type": "object",
    "properties": {
        "field": {
            "type": "string", "maxLength": LONGEST_NAME, "examples": ["name.firstName"],
            "description": "A path in the body, a header, a parameter of the query, or body.",
        },
        "code": {
            "type": "string", "pattern": "^[a-z][a-z0-9_]*$", "examples": ["required"],
            "description": "The rule that is broken; it stays when the words change. required, unknown, read_only, "
            "repeated, wrong_type, malformed, too_short, too_long, too_small, too_large, out_of_range, not_one_of, "
            "not_honoured, unknown_token, those of the service's own rules, and invalid.",
        },
        "reason": {"type": "string", "maxLength": LONGEST_REASON, "examples": ["is required"]},
    },
    "required": ["field", "code", "reason"],
}  # fmt: skip

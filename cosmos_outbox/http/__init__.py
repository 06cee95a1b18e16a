"""HTTP calls on aggregates: turns requests into validated values, and results and errors into responses.

Declare a :class:`Resource`: ``functions.app(service, resources=[...])`` serves its calls in a function app,
:func:`fastapi_router` makes a router of them for a FastAPI program, :func:`asgi_app` an application for any other.
``request`` is the module that reads each part of a request, for calls that are written by hand. A name is imported when
it is first used.
"""

from typing import TYPE_CHECKING

from cosmos_outbox.kernel.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from cosmos_outbox.http import request
    from cosmos_outbox.http.answering import Answering
    from cosmos_outbox.http.asgi import asgi_app
    from cosmos_outbox.http.fastapi import fastapi_router
    from cosmos_outbox.http.message import READING, Answer, Request
    from cosmos_outbox.http.problems import FieldError, InvalidRequest
    from cosmos_outbox.http.resource import Action, Resource
    from cosmos_outbox.http.responses import json_response
    from cosmos_outbox.http.validation import known, validated
    from cosmos_outbox.outbox.aggregate import ChangeAnswer, KeyedRequest

__all__ = [
    "READING", "Action", "Answer", "Answering", "ChangeAnswer", "FieldError", "InvalidRequest", "KeyedRequest",
    "Request", "Resource", "asgi_app", "fastapi_router", "json_response", "known", "request", "validated",
]  # fmt: skip

if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "cosmos_outbox.http.answering": ("Answering",),
            "cosmos_outbox.http.asgi": ("asgi_app",),
            "cosmos_outbox.http.fastapi": ("fastapi_router",),
            "cosmos_outbox.http.message": ("READING", "Answer", "Request"),
            "cosmos_outbox.http.problems": ("FieldError", "InvalidRequest"),
            "cosmos_outbox.http.request": (),
            "cosmos_outbox.http.resource": ("Action", "Resource"),
            "cosmos_outbox.http.responses": ("json_response",),
            "cosmos_outbox.http.validation": ("known", "validated"),
            "cosmos_outbox.outbox.aggregate": ("ChangeAnswer", "KeyedRequest"),
        },
    )

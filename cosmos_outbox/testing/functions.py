"""Calls the function of a function app that the host would choose, without a host and without a socket.

The host's own work (keys, the limits of a request, its answer if a function raises) is left out.
"""

import inspect
import json as jsons
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import azure.functions as func

_PREFIX = "/api/"


async def call(  # noqa: PLR0913 - the parts of a call, by their names
    app: func.FunctionApp,
    method: str,
    path: str,
    *,
    json: Any = None,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> func.HttpResponse:
    """Call the function of this route (``/api/bookings/7?page=2``); ``json`` or ``body`` is the body.

    Raises LookupError: the app has no function for it.

    Example::

        async with in_memory(service):
            answer = await call(app, "POST", "/api/bookings", json={"title": "A table"})
            assert answer.status_code == 201
    """
    parts = urlsplit(path)
    route = parts.path.removeprefix(_PREFIX).strip("/")
    given = dict(headers or {})
    if json is not None:
        body = jsons.dumps(json).encode()
        given = {"Content-Type": "application/json", **given}
    for function in sorted(app.get_functions(), key=lambda each: str(each.get_function_name()).upper()):
        trigger = function.get_trigger()
        if trigger is None or trigger.get_binding_name() != "httpTrigger":
            continue
        bound = trigger.get_dict_repr()
        found = _pattern(str(bound.get("route") or function.get_function_name())).fullmatch(route)
        methods = [str(getattr(each, "value", each)).upper() for each in bound.get("methods") or ()]
        if found is None or (methods and method.upper() not in methods):
            continue
        request = func.HttpRequest(
            method.upper(), f"http://localhost{_PREFIX}{route}{'?' if parts.query else ''}{parts.query}",
            headers=given, params=dict(parse_qsl(parts.query, keep_blank_values=True)),
            route_params=found.groupdict(), body=body,
        )  # fmt: skip
        answer = function.get_user_function()(**{str(bound["name"]): request})
        answered: func.HttpResponse = await answer if inspect.isawaitable(answer) else answer
        return answered
    raise LookupError(f"the app has no function for {method} {path}: look at its routes and methods")


def _pattern(route: str) -> "re.Pattern[str]":
    """Returns the pattern of a route such as ``bookings/{id}`` or ``{*path}``; a constraint after ":" is ignored."""
    parts = []
    for literal, name in re.findall(r"([^{]*)(?:\{([^}]*)\})?", route):
        parts.append(re.escape(literal))
        if name:
            bare = name.lstrip("*").partition(":")[0].rstrip("?")
            parts.append(f"(?P<{bare}>{'.*' if name.startswith('*') else '[^/]+'})")
    return re.compile("".join(parts), re.IGNORECASE)

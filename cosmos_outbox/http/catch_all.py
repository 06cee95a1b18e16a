"""A known path with a wrong method is 405, not 404; the methods of a path are read from the functions themselves.

The Functions host answers 404 for a known route with another method (azure-functions-host issues 9876 and 10098). So
one function, the catch-all, takes every call that no other function takes. The host tries routes in the alphabetical
order of the functions' names: the name of the catch-all must sort last.
"""

import functools
import re

import azure.functions as func

from cosmos_outbox.http.responses import problem

_PARAMETER = re.compile(r"\{[^{}*]+\}")


def no_such_call(request: func.HttpRequest, app: func.FunctionApp, hint: str) -> func.HttpResponse:
    """405 when the app has the path but not the method, otherwise 404 with a hint."""
    path = request.route_params.get("path", "").removesuffix("/")
    taken = {method for route, methods in _routes(app) if route.fullmatch(path) for method in methods}
    # A request with a method that is taken is here because its path is not quite that path: it has a slash too many.
    if not taken or request.method in taken:
        return problem(404, "Not found", f"There is nothing at this path: {hint}.")
    allowed = ", ".join(sorted(taken))
    detail = f"This path does not take {request.method}; it takes {allowed}."
    return problem(405, "Method not allowed", detail, headers={"Allow": allowed})


@functools.cache
def _routes(app: func.FunctionApp) -> list[tuple[re.Pattern[str], set[str]]]:
    """The paths of the app's HTTP functions, each with the methods that its function takes."""
    routes: list[tuple[re.Pattern[str], set[str]]] = []
    for function in app.get_functions():
        trigger = function.get_trigger()
        declared = trigger.get_dict_repr() if trigger is not None else {}
        route = str(declared.get("route") or function.get_function_name())
        if declared.get("type") == "httpTrigger" and "{*" not in route:
            methods = {str(getattr(method, "value", method)) for method in declared.get("methods", ())}
            routes.append((_pattern(route), methods))
    return routes


def _pattern(route: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(map(re.escape, _PARAMETER.split(route))))

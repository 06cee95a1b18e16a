"""A function that the host would never call is refused when it lists them, and no other is."""

import azure.functions as func
import pytest

from cosmos_outbox.functions.edge.http_functions import http_function
from cosmos_outbox.functions.function_app import App
from cosmos_outbox.http import Answer, Answering, Request


def test_a_function_that_would_get_no_call_is_refused_when_the_host_lists_them() -> None:
    """The host orders names without regard to case."""
    app = App()

    @app.route(route="zones", methods=["GET"])
    async def _zones(req: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse()

    with pytest.raises(ValueError, match="the function _zones would get no call"):
        app.get_functions()


def test_two_functions_that_take_one_call_are_refused_when_the_host_lists_them() -> None:
    """The host would serve the one whose name sorts first."""
    app = App()
    for name in ("one", "other"):
        route = app.route(route=f"zones/{{{name}}}", methods=["GET", "DELETE"] if name == "one" else ["GET"])
        app.function_name(name)(route(http_function(Answering()(_zone))))
    with pytest.raises(ValueError, match=r"two functions take GET /zones/\{other\}"):
        app.get_functions()


async def _zone(req: Request) -> Answer:
    return Answer(200)


def test_a_function_hides_none_that_takes_other_methods() -> None:
    """``zones/parked`` looks as ``zones/{id}`` does, and the host asks each for its own method."""
    app = App()
    for name, route, method in (("change", "zones/{id}", "POST"), ("show", "zones/parked", "GET")):
        declared = app.route(route=route, methods=[method])
        app.function_name(name)(declared(http_function(Answering()(_zone))))
    assert [each.get_function_name() for each in app.get_functions()] == ["change", "show"]

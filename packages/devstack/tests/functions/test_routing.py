"""Expectations are what the real host answers; see the issues that the router's docstring names."""

import pytest

from devstack.functions.routing import Router, RouteTemplate, UnsupportedRoute, resolved_path

GUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.mark.parametrize(
    ("template", "path", "parameters"),
    [
        ("api/orders", "/api/orders", {}),
        ("api/orders", "/API/Orders/", {}),
        ("api/orders", "/api/orders/1", None),
        ("api/orders", "/api", None),
        ("api/orders", "/api//orders", None),
        ("api/orders/{id}", "/api/orders/1", {"id": "1"}),
        ("api/orders/{id}", "/api/orders/a b", {"id": "a b"}),
        ("api/orders/{id}", "/api/orders/", None),
        ("api/orders/{id?}", "/api/orders", {}),
        ("api/{a}/{b?}", "/api/1/2", {"a": "1", "b": "2"}),
        ("api/{*rest}", "/api/a/b c", {"rest": "a/b c"}),
        ("api/{*rest}", "/api", {}),
        ("api/{*rest}", "/api/", {}),
        ("api/{*rest}", "/api/a/", {"rest": "a/"}),
        ("api/{*rest}", "/api/orders//", {"rest": "orders//"}),
        ("api/{*rest}", "/api/orders//1", {"rest": "orders//1"}),
        ("api/{*rest}", "/api//orders", None),
        ("api/{*rest}", "//api/orders", None),
        ("api/orders/{*rest}", "/api/orders//", None),
        ("{*rest}", "//", None),
        ("api/orders", "/api/orders//", None),
        ("/api/orders/", "/api/orders", {}),
        ("api/{id:guid}", f"/api/{GUID}", {"id": GUID}),
        ("api/{id:guid}", f"/api/{GUID.upper()}", {"id": GUID.upper()}),
        (
            "api/{id:guid}",
            "/api/6f9619ff8b86d011b42d00c04fc964ff",
            {"id": "6f9619ff8b86d011b42d00c04fc964ff"},
        ),
        ("api/{id:guid}", "/api/6f9619ff-8b86", None),
        ("api/{id:int}", "/api/-12", {"id": "-12"}),
        ("api/{id:int}", "/api/2147483648", None),
        ("api/{id:long}", "/api/2147483648", {"id": "2147483648"}),
        ("api/{id:bool}", "/api/True", {"id": "True"}),
        ("api/{id:alpha}", "/api/abc", {"id": "abc"}),
        ("api/{id:alpha}", "/api/abc1", None),
        ("api/{id:minlength(3)}", "/api/ab", None),
        ("api/{id:length(2,3):alpha}", "/api/abc", {"id": "abc"}),
        ("api/{id:length(2,3)}", "/api/abcd", None),
        ("api/{id:maxlength(2)?}", "/api", {}),
        ("", "/", {}),
    ],
)
def test_a_template_takes_a_path(template: str, path: str, parameters: dict[str, str] | None) -> None:
    assert RouteTemplate.parse(template).match(path) == parameters


@pytest.mark.parametrize(
    "template",
    [
        "a//b",
        "api//b",
        "//a",
        "a{b}",
        "{a:regex(x)}",
        "{a:range(1,2)}",
        "{a",
        "{a=5}",
        "{*a}/b",
        "{a?}/b",
        "{a:minlength(1,2)}",
    ],
)
def test_what_is_not_supported_is_refused(template: str) -> None:
    with pytest.raises(UnsupportedRoute):
        RouteTemplate.parse(template)


@pytest.mark.parametrize(
    ("sent", "resolved"),
    [
        ("/api/orders", "/api/orders"),
        ("/api/a%20b", "/api/a b"),
        ("/api/%C3%A4", "/api/ä"),
        ("/api/a%2Fb", "/api/a%2Fb"),
        ("/api/a%2fb", "/api/a%2fb"),
        ("/api/a%252Fb", "/api/a%2Fb"),
        ("/api/orders/.", "/api/orders/"),
        ("/api/orders/..", "/api/"),
        ("/api/orders/%2e", "/api/orders/"),
        ("/api/orders/1/%2E%2e", "/api/orders/"),
        ("/api/./orders", "/api/orders"),
        ("/other/../api/orders", "/api/orders"),
        ("/../../api", "/api"),
        ("/..", "/"),
        ("/api/orders//..", "/api/orders/"),
        ("/api/orders//", "/api/orders//"),
        ("//api", "//api"),
        ("/api/...", "/api/..."),
    ],
)
def test_a_path_is_decoded_and_its_dot_segments_resolved_first(sent: str, resolved: str) -> None:
    assert resolved_path(sent) == resolved


def router(**routes: str) -> Router[str]:
    made: Router[str] = Router()
    for name, route in routes.items():
        method, _, template = route.partition(" ")
        made.add(name, RouteTemplate.parse(template), frozenset({method} - {"*"}), name)
    return made


def test_the_first_function_by_name_wins_over_a_more_exact_one() -> None:
    assert router(List="GET products/list", Details="GET products/{id}").find("GET", "/products/list") == (
        "Details",
        {"id": "list"},
    )


def test_names_are_ordered_without_regard_to_case() -> None:
    assert router(B="GET {id}", a="GET x").find("GET", "/x") == ("a", {})


def test_an_underscore_comes_after_the_letters() -> None:
    assert router(a_b="GET {id}", aZ="GET x").find("GET", "/x") == ("aZ", {})


def test_a_known_path_with_an_unknown_method_is_not_found() -> None:
    assert router(a="GET x").find("DELETE", "/x") is None


def test_the_method_chooses_between_functions_with_one_route() -> None:
    both = router(a="GET x", b="PATCH x", c="* y")

    assert both.find("PATCH", "/x") == ("b", {})
    assert both.find("OPTIONS", "/y") == ("c", {})

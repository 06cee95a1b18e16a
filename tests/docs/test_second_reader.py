"""The function that docs/use/settings.md shows as a second reader of the feed can be added as it is."""

import re

import azure.functions as func

import function_app
from cosmos_outbox.functions.function_app import App
from infra.bootstrap import application
from tests.support.paths import ROOT


def test_a_second_reader_has_a_place_of_its_own_and_the_relays_endless_retry() -> None:
    page = (ROOT / "docs" / "use" / "settings.md").read_text().partition("## A second reader of the feed")[2]
    [snippet] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    app = App()
    exec(snippet, {"app": app, "func": func, "application": application})
    [audit] = app.get_functions()
    [relay] = [each for each in function_app.app.get_functions() if each.get_function_name() == "relay"]

    own, its = (dict(each.get_bindings()[0].get_dict_repr()) for each in (audit, relay))
    assert {name for name in own if own[name] != its[name]} == {"leaseContainerPrefix"}
    assert audit.get_settings_dict("retry_policy") == relay.get_settings_dict("retry_policy")

"""A function app of a service has every function that its promises rest on, whoever writes the rest of it.

The Functions host tries HTTP routes in the alphabetical order of the functions' names
(https://github.com/Azure/azure-functions-host/issues/9876): so the name of the catch-all function sorts last.
"""

import azure.functions as func

from cosmos_outbox.functions.operator.calls import health_functions, operator_functions
from cosmos_outbox.functions.operator.effects import effect_functions
from cosmos_outbox.functions.operator.set_aside import set_aside_functions
from cosmos_outbox.functions.relay import relay_functions
from cosmos_outbox.functions.subscription import AnySubscriber, subscription_functions
from cosmos_outbox.http import catch_all, request
from cosmos_outbox.http.answering import Answering
from cosmos_outbox.operations.views.names import names_of
from cosmos_outbox.wiring.located import AnyService, operator_names
from cosmos_outbox.wiring.service import EffectOf, Service
from cosmos_outbox.wiring.subscribing import ForeignEffect

CATCH_ALL = "unrouted"


class App(func.FunctionApp):
    """A function app whose functions can be listed more than once, and whose catch-all is tried last.

    azure-functions 1.26 checks in each call of ``get_functions`` that no name is taken, and finds the names that the
    call before took.
    """

    _functions: list[func.Function] | None = None

    def get_functions(self) -> list[func.Function]:
        """The app's functions, built once. Raises ValueError when two functions have the same name, or one that hides.

        The host orders names without regard to case, ``_`` behind the letters.
        """
        if self._functions is None:
            listed = super().get_functions()
            for each in listed:
                name, trigger = str(each.get_function_name()), each.get_trigger()
                is_http = trigger is not None and trigger.get_binding_name() == "httpTrigger"
                if is_http and _as_ordered(name) > _as_ordered(CATCH_ALL):
                    raise ValueError(
                        f"the function {name} would get no call: the host tries {CATCH_ALL}, which takes every path, "
                        "before it. Give it a name that sorts before"
                    )
            self._functions = listed
        return self._functions


def _as_ordered(name: str) -> str:
    return name.upper()


def app(service: AnyService) -> App:
    """The function app of a service: relay, subscribers, timers, health and operators' calls are in it.

    One that only subscribes has neither a relay nor the operations page, which shows one. Decorate the service's own
    functions with it. Raises Misconfigured when a setting that a trigger needs is wrong.
    """
    made = App(http_auth_level=func.AuthLevel.FUNCTION)
    names = operator_names(service)
    if isinstance(service, Service):
        made.register_functions(operator_functions(service, names, lists=_lists(service)))
        made.register_functions(relay_functions(service))
    else:
        made.register_functions(health_functions(lambda: service().check()))
    for each, path in _with_paths(service):
        made.register_functions(subscription_functions(service, each))
        made.register_functions(set_aside_functions(service, each.name, names, path=path))
        if isinstance(each, EffectOf | ForeignEffect):
            made.register_functions(effect_functions(service, each.name, names, path=path))

    @made.function_name(CATCH_ALL)
    @made.route(route="{*path}")  # with every method; a list of azure-functions cannot name TRACE
    @Answering().honouring(*request.HONOURED)
    async def unrouted(req: func.HttpRequest) -> func.HttpResponse:
        """Every call that no other function takes."""
        return catch_all.no_such_call(req, made, _hint(service))

    return made


def _with_paths(service: AnyService) -> list[tuple[AnySubscriber, str]]:
    """Each subscriber with what comes before the routes of its operators' calls: nothing for the first."""
    return [(each, "" if number == 0 else each.name) for number, each in enumerate(service.subscribers)]


def _lists(service: Service) -> list[str]:
    """The lists of what the subscribers have not done."""
    lists = []
    for each, path in _with_paths(service):
        before = f"{path}/" if path else ""
        lists += [f"{before}set-aside", *([f"{before}effects"] if isinstance(each, EffectOf) else [])]
    return lists


def _hint(service: AnyService) -> str:
    if not isinstance(service, Service):
        return "operators begin at /api/subscriber"
    places = [f"{names.path} are at /api/{names.path}" for names in map(names_of, service.aggregates)]
    return "; ".join(places) or "operators begin at /api/operations"

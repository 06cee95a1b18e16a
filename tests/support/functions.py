"""The functions of an app, as the host lists and calls them."""

import importlib
import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import azure.functions as func
from azure.functions import Function

NO_CONTEXT = SimpleNamespace(trace_context=SimpleNamespace(trace_parent=None), retry_context=None)
"""Of an invocation of which nobody knows a trace."""


def functions(module: str = "function_app") -> dict[str, Function]:
    """Each function by its name; ``module`` is that of a service under ``examples/``, or the contact service's."""
    return of_app(importlib.import_module(module).app)


def of_app(app: func.FunctionApp) -> dict[str, Function]:
    """Each function by its name."""
    return {str(function.get_function_name()): function for function in app.get_functions()}


@dataclass
class Calls:
    """The functions of one app."""

    app: func.FunctionApp

    async def __call__(
        self, name: str, body: Any = None, *, status: int = 200, query: str = "", **route: str
    ) -> Any:
        """The JSON of the answer, which has this status."""
        asked = func.HttpRequest(
            "GET" if body is None else "POST", f"http://x/api/x?{query}",
            headers={"Content-Type": "application/json"}, route_params=route,
            body=b"" if body is None else json.dumps(body).encode(),
        )  # fmt: skip
        answer = await self.run(name, asked)
        assert answer.status_code == status, answer.get_body()
        return json.loads(answer.get_body()) if answer.get_body() else None

    async def run(self, name: str, *given: Any) -> Any:
        """What the function returns for what its trigger gives."""
        return await of_app(self.app)[name].get_user_function()(*given)

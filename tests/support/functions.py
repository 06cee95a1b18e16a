"""The functions of an app, as the host lists them."""

import importlib

from azure.functions import Function


def functions(module: str = "function_app") -> dict[str, Function]:
    """Each function by its name; ``module`` is that of a service under ``examples/``, or the contact service's."""
    app = importlib.import_module(module).app
    return {str(function.get_function_name()): function for function in app.get_functions()}

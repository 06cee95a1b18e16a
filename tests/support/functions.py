"""The functions of the app, read from it once: the library refuses to list them a second time in one process."""

from functools import cache

from azure.functions import Function

import function_app


@cache
def functions() -> dict[str, Function]:
    """Each function by its name."""
    return {str(function.get_function_name()): function for function in function_app.app.get_functions()}

"""The functions of the app as the host lists them."""

from azure.functions import Function

import function_app


def functions() -> dict[str, Function]:
    """Each function by its name."""
    return {str(function.get_function_name()): function for function in function_app.app.get_functions()}

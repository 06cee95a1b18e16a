"""Azure Functions: what a service needs beside its own calls is registered in one line, and nothing of it is optional.

A trigger parses, calls and answers. The import of a function app opens nothing: the host imports it to list functions.
"""

from cosmos_outbox.settings.errors import needed

needed("functions")

from cosmos_outbox.functions.edge.http_functions import answering  # noqa: E402 - not before it is known to be there
from cosmos_outbox.functions.function_app import App, app  # noqa: E402

__all__ = ["App", "answering", "app"]

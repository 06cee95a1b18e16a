"""Hosts a service in Azure Functions: one line registers every function that the outbox needs; none is optional.

A trigger only parses, calls and responds. Importing a function app opens nothing: the host does so to list functions.
"""

from cosmos_outbox.settings.errors import needed

needed("functions")

from cosmos_outbox.functions.function_app import App, app  # noqa: E402
from cosmos_outbox.functions.http import answering  # noqa: E402 - not before it is known to be there

__all__ = ["App", "answering", "app"]

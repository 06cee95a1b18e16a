"""Hosts a service in Azure Functions: one line registers every function that the outbox needs; none is optional.

A trigger only parses, calls and responds. Importing a function app opens nothing: the host does so to list functions.
"""

from cosmos_outbox.kernel.lazy_imports import loading
from cosmos_outbox.settings.errors import needed

needed("functions")

with loading():
    from cosmos_outbox.functions.function_app import App, app
    from cosmos_outbox.functions.http import answering

__all__ = ["App", "answering", "app"]

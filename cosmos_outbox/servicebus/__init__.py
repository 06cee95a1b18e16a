"""Service Bus through the asynchronous SDK. No other package imports ``azure.servicebus``.

The import raises Misconfigured if the SDK is not installed.
"""

from cosmos_outbox.settings.errors import needed

needed("servicebus")

"""The broker: Service Bus through the asynchronous SDK. No other package imports ``azure.servicebus``.

Raises Misconfigured when it is imported where the SDK is not installed.
"""

from cosmos_outbox.settings.errors import needed

needed("servicebus")

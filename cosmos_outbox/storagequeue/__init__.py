"""The broker: Azure Storage queues through the asynchronous SDK. No other package imports ``azure.storage.queue``.

Raises Misconfigured when it is imported where the SDK is not installed.
"""

from cosmos_outbox.settings.errors import needed

needed("storagequeue")

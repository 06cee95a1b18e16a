"""Azure Storage queues through the asynchronous SDK. No other package imports ``azure.storage.queue``.

The import raises Misconfigured if the SDK is not installed.
"""

from cosmos_outbox.settings.errors import needed

needed("storagequeue")

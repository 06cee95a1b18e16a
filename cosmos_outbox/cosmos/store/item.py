"""What every item of a container has in common, whatever it holds."""

from typing import Any

Item = dict[str, Any]
"""A Cosmos item: JSON on its way to or from the SDK."""

KEEP_FOR_EVER = -1
"""The ``ttl`` of an item that never expires."""

FENCE = "outbox-fence"
"""The id, and the type, of a document that only makes the service tell its state (:mod:`.container`)."""

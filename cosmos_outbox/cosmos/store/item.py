"""What every item of a container has in common, whatever it holds."""

from typing import Any

Item = dict[str, Any]
"""A Cosmos item: JSON on its way to or from the SDK."""

KEEP_FOR_EVER = -1
"""The ``ttl`` of an item that never expires."""

FENCE = "outbox-fence"
"""The id of an item that never exists: the refusal to replace it carries a session token (:mod:`.container`)."""

FENCE_TOKEN = "outbox-fence-token"  # noqa: S105 - an id
"""The id of the item, of the type ``FENCE``, that is written where a refusal carries no session token."""

"""Whether the answer to a write was lost is known here alone: the SDK makes attempts of its own, in silence.

It repeats a write after a broken connection, and after a 503, which leaves the outcome open, too. The first answer
that a caller sees may then be the answer to a repetition: a 429 to a batch that was committed before.
"""

from typing import Any

import aiohttp
from azure.core.exceptions import ServiceRequestTimeoutError
from azure.core.pipeline.transport import AioHttpTransport

from cosmos_outbox.cosmos.store.errors import current

_BATCH = "x-ms-cosmos-is-batch-request"


class TrackingTransport(AioHttpTransport):  # type: ignore[misc]  # azure.core exports it without its type
    """The SDK's own transport, which reports to :func:`cosmos_outbox.cosmos.store.errors.noted` what it sees."""

    async def send(self, request: Any, **options: Any) -> Any:
        """Send the request. Raises as its base does."""
        attempts = current.get()
        if attempts is None or _BATCH not in request.headers:
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except BaseException as error:  # a cancelled one too: the request is under way
            attempts.answer_lost = attempts.answer_lost or _may_have_arrived(error)
            raise
        attempts.throttled, attempts.succeeded = response.status_code == 429, response.status_code < 300
        attempts.answer_lost = attempts.answer_lost or _tells_no_outcome(response.status_code)
        return response


def _may_have_arrived(error: BaseException) -> bool:
    """False only where no connection was made: then nothing can have been sent."""
    return not isinstance(error, ServiceRequestTimeoutError) and not isinstance(
        error.__cause__, aiohttp.ClientConnectorError
    )


def _tells_no_outcome(status: int) -> bool:
    """408 and 5xx: the batch may be committed (the table of statuses in :mod:`cosmos_outbox.cosmos.store.errors`)."""
    return status == 408 or status >= 500

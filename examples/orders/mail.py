"""The mail service, as this service needs it."""

import logging
from typing import Protocol

_log = logging.getLogger(__name__)


class Mail(Protocol):
    """Sends e-mails. A mail service that takes an idempotency key sends one e-mail for each key."""

    async def order_shipped(self, order_id: str, *, idempotency_key: str) -> None:
        """Notify the customer that the order is on its way.

        Raises:
            EffectUnavailable: the mail service is away: nothing was sent.
            EffectRejected: the mail service refuses this e-mail.
        """


class LoggedMail:
    """Stands in for a mail service: the log says what would be sent."""

    async def order_shipped(self, order_id: str, *, idempotency_key: str) -> None:
        """Log the e-mail."""
        _log.info("e-mail %s: order %s is on its way", idempotency_key, order_id)

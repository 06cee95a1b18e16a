"""The receiver of a webhook can be reached, at an address that may be asked."""

from cosmos_outbox.operations.dependencies import LOOK_SECONDS
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.preflight.report import Finding, ok, unknown, wrong
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.webhook import Webhook
from cosmos_outbox.webhook.reaching import reach


async def check(of: Webhook) -> list[Finding]:
    """All findings about the receiver; nothing is posted to it."""
    subject = f"receiver {of.destination}"
    try:
        await reach(of, seconds=LOOK_SECONDS)
    except Misconfigured as error:
        return [wrong(subject, "its name leads to an address that may not be asked", str(error))]
    except Unavailable as error:
        return [unknown(subject, str(error), "start the receiver, or correct WEBHOOK_URL")]
    return [ok(subject, "can be reached; whether it takes the signature shows with the first event")]

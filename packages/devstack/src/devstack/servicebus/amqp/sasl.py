"""SASL lets a client in that will show a token for each entity on ``$cbs``, or that proves the key with PLAIN.

Source of the mechanisms: what Azure Service Bus offers (MSSBCBS, PLAIN, ANONYMOUS; EXTERNAL needs TLS).
"""

import hmac

from devstack.servicebus.amqp.cbs import SasKey
from devstack.servicebus.codec.errors import malformed
from devstack.servicebus.codec.performatives import SaslInit, SaslMechanisms, SaslOutcome
from devstack.servicebus.codec.values import Array, Symbol

OK, AUTHENTICATION_FAILED = 0, 1

MECHANISMS = SaslMechanisms(Array((Symbol("MSSBCBS"), Symbol("PLAIN"), Symbol("ANONYMOUS"))))


def outcome(init: object, key: SasKey) -> tuple[SaslOutcome, bool]:
    """The answer, and whether the client proved the key, so that it needs no token."""
    if not isinstance(init, SaslInit):
        raise malformed("expected sasl-init")
    if init.mechanism in ("ANONYMOUS", "MSSBCBS"):
        return SaslOutcome(OK), False
    if init.mechanism == "PLAIN":
        _, _, rest = (init.initial_response or b"").partition(b"\0")
        name, _, secret = rest.partition(b"\0")
        right = name.decode(errors="replace") == key.name and hmac.compare_digest(secret, key.secret.encode())
        return SaslOutcome(OK if right else AUTHENTICATION_FAILED), right
    return SaslOutcome(AUTHENTICATION_FAILED), False

"""An error that travels: every refusal in devstack/servicebus is one condition that AMQP or Service Bus defines.

Sources: OASIS AMQP 1.0 part 2, 2.8.15 to 2.8.18; the ``com.microsoft`` conditions are those that the Azure SDKs map to
their exceptions.
"""

NOT_FOUND = "amqp:not-found"
UNAUTHORIZED = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
INTERNAL_ERROR = "amqp:internal-error"
ILLEGAL_STATE = "amqp:illegal-state"
FRAMING_ERROR = "amqp:connection:framing-error"
CONNECTION_FORCED = "amqp:connection:forced"
WINDOW_VIOLATION = "amqp:session:window-violation"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"

MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
TIMEOUT = "com.microsoft:timeout"
SERVER_BUSY = "com.microsoft:server-busy"
ENTITY_DISABLED = "com.microsoft:entity-disabled"
ENTITY_ALREADY_EXISTS = "com.microsoft:entity-already-exists"
ARGUMENT_ERROR = "com.microsoft:argument-error"


class AmqpError(Exception):
    """A refusal to put on the wire: ``condition`` is a symbol from this module, ``description`` is for people."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


def malformed(description: str) -> AmqpError:
    """The peer sent bytes that are no AMQP value."""
    return AmqpError(DECODE_ERROR, description)

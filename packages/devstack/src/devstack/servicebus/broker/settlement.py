"""How a reader ends its hold on a message, and where a dead letter says why it is one."""

from enum import Enum

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"


class Settlement(Enum):
    """What the reader asks for; what then becomes of the message is the queue's to decide."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"

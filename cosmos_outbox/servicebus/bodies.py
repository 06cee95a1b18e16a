"""Every message has a body of bytes, however its sender's AMQP client wrote it: one that is odd ends no loop.

Apart from :mod:`cosmos_outbox.servicebus.received`, which is imported without the broker's SDK.
"""

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType


def body_of(message: ServiceBusReceivedMessage) -> bytes:
    """The body. A JMS client sends a text as an AMQP value; a value that is no text is no event, and is kept to see."""
    if message.body_type is AmqpMessageBodyType.DATA:
        return b"".join(message.body)
    body = message.body if message.body_type is AmqpMessageBodyType.VALUE else list(message.body)
    return body if isinstance(body, bytes) else str(body).encode()

"""The element names and namespaces of the management API, in both directions.

Source: the Service Bus management API (service ``servicebus/connect`` schema of 2010/10), version 2021-05 and 2024-05.
"""

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
CORRELATION_FIELDS = (
    "CorrelationId",
    "MessageId",
    "To",
    "ReplyTo",
    "Label",
    "SessionId",
    "ReplyToSessionId",
    "ContentType",
)
DESCRIPTIONS = {
    "queue": "QueueDescription",
    "topic": "TopicDescription",
    "subscription": "SubscriptionDescription",
}

"""Functions on Service Bus and on a timer."""

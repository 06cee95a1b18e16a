"""The broker: Service Bus through the asynchronous SDK. No other package imports ``azure.servicebus``."""

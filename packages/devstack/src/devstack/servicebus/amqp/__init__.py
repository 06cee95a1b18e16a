"""AMQP 1.0 as Service Bus speaks it: bytes in, events and the next deadline out; nothing here knows who starts it."""

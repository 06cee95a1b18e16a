"""A Service Bus namespace on loopback: AMQP 1.0 and the management API, durable in one SQLite file."""

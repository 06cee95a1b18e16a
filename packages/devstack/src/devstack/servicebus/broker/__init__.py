"""What a Service Bus entity does, without any I/O: time is an argument, storage a protocol."""

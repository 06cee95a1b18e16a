"""What a service promises to readers of its events: their schemas, and an AsyncAPI document."""

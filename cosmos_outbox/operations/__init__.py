"""What whoever runs a service sees and does: each reports a failure as it is, and loses no event."""

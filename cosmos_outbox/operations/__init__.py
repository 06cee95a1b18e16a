"""What whoever runs a service sees and does: each of it tells the truth about a failure, and loses no event."""

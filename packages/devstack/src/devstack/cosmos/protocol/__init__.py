"""What every answer of the service has in common: its errors, and how its JSON is written."""

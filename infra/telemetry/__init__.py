"""What the adapters tell of their work, and where the process sends it: metrics and traces of OpenTelemetry."""

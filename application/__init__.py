"""What the service does, told through ports: of the outside it knows only what the outbox's ports promise."""

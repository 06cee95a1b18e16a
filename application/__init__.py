"""What the service does, told through ports: it knows the domain, and of the outside only what ``ports`` promises."""

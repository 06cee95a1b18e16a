"""An example of a publisher of a service's own."""

"""Settings come from the environment and from what a service declares, never from a name that another service has."""

"""Where what Azure Functions hands over becomes what the library knows."""

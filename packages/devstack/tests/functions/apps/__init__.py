"""Function apps that the tests run in the host."""

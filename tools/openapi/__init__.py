"""Makes the OpenAPI description of the HTTP API from the functions, the models and the errors."""

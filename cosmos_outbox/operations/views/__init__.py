"""What an operator is shown, as JSON: the calls over HTTP and the command show the same."""

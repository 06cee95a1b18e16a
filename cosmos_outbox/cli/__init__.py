"""One command for operators and containers: a part parses, calls and prints, and its exit code says what happened."""

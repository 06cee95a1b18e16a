"""One command for operators and containers: a part parses, calls and tells, and its exit code says what happened."""

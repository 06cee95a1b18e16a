"""The stack as its user sees it: processes, ports, lines and exit codes."""

"""The sign-up in memory, with what dies between its two transactions."""

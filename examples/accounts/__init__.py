"""Accounts: an e-mail address that only one of them has."""

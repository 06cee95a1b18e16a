"""Checkout: a process over orders, articles and payments, each step a reaction, with a deadline and compensations."""

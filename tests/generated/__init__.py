"""Requests, types and clients that are generated from the API's document, and what the app makes of them."""

"""Sends events to a receiver's HTTP endpoint, by aiohttp and the Standard Webhooks specification."""

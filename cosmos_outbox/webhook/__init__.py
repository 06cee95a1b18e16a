"""A receiver's HTTP endpoint as the place where events are sent to; knows aiohttp and the Standard Webhooks."""

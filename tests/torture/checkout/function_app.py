"""The calls of ``examples/checkout``, of this service."""

from cosmos_outbox import functions
from examples.checkout import http
from tests.torture.checkout.service import service

app = functions.app(service, resources=[http.articles, http.orders, http.payments])

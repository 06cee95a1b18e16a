"""The calls are declared; relay, reactions, timers and operators' calls come with the app."""

from cosmos_outbox import functions
from examples.checkout import http
from examples.checkout.service import service

app = functions.app(service, resources=[http.articles, http.orders, http.payments])

"""The calls on tasks in a function app."""

from cosmos_outbox import functions
from tests.support.tasks import service, tasks

app = functions.app(service, resources=[tasks])

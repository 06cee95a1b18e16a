"""The relay is retried twice and then given up: the host checkpoints past the batch, and its events are gone."""

from typing import Any

from infra.servicebus import client
from tests.torture.bugs.deployed import deployed_but, plant

_servicebus_client = client.servicebus_client


def _client_without_retries(*arguments: Any) -> Any:
    made: Any = _servicebus_client(*arguments)
    made._config.retry_total = 0
    return made


# So that three attempts do not take half a minute.
plant(client, "servicebus_client", _client_without_retries)
app = deployed_but('max_retry_count="-1"', 'max_retry_count="2"')

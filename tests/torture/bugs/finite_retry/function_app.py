"""The relay is retried twice and then given up: the host checkpoints past the batch, and its events are gone."""

from typing import Any

import infra.wiring
from infra.servicebus.client import servicebus_client
from tests.torture.bugs.deployed import deployed_but, plant


def _client_without_retries(*arguments: Any) -> Any:
    client = servicebus_client(*arguments)
    client._config.retry_total = 0
    return client


# So that three attempts do not take half a minute.
plant(infra.wiring, "servicebus_client", _client_without_retries)
app = deployed_but('max_retry_count="-1"', 'max_retry_count="2"')

"""A repetition takes its own finished request for one that is still being answered: 409, for ever."""

from typing import NoReturn

import outbox.idempotency
from outbox.errors import ConcurrentChange
from tests.torture.bugs.deployed import deployed_but, plant


async def _refused(*_: object) -> NoReturn:
    raise ConcurrentChange("the same request is being answered at this moment")


plant(outbox.idempotency, "replayed", _refused)
app = deployed_but()

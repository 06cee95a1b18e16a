"""A container that loses one write of a story, on replicas that lag: for tests that lose every write in turn."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key


class Loss(Enum):
    NOT_WRITTEN = "the write does not arrive"
    NO_ANSWER = "the write is stored, and its answer is lost"
    REPEATED = "the write is stored, its answer is lost, and the SDK repeats it"
    THROTTLED = "the write is stored, its answer is lost, and the SDK's repetition is throttled"
    DIED_BEFORE = "the process dies before the write"
    DIED_AFTER = "the process dies after the write"


EACH_LOSS = [loss if loss is Loss.NO_ANSWER else pytest.param(loss, marks=pytest.mark.long) for loss in Loss]
"""For ``parametrize``: quick is that after which a repetition may do it twice; models lose each write in each way."""


class ProcessDied(BaseException):
    """No handler of errors runs in a process that died."""


@dataclass
class Fate:
    """Which write of a story is lost, and how."""

    loss: Loss
    write: int
    writes: int = 0
    also: Mapping[int, Loss] = field(default_factory=dict)
    """Other writes that are lost."""

    def of_this_write(self) -> Loss | None:
        """How the write that is made now is lost; None: it is not."""
        self.writes += 1
        return self.loss if self.writes == self.write else self.also.get(self.writes)

    @property
    def struck(self) -> bool:
        return self.writes >= self.write


class OldReplica(Container):
    """Reads without a session token see nothing: the replica lags as far as the contract allows."""

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        if not consistent and self.seen(partition_key) is None:
            return None
        return await super().read(item_id, partition_key, consistent=consistent)

    async def page(
        self,
        query: str,
        parameters: Mapping[str, Any],
        size: int,
        continuation: str | None,
        *,
        partition_key: Key | None = None,
        session_token: str | None = None,
    ) -> tuple[list[Item], str | None]:
        if partition_key is not None and self.seen(partition_key) is None:
            return [], None
        return await super().page(
            query, parameters, size, continuation, partition_key=partition_key, session_token=session_token
        )

    async def first(
        self, query: str, parameters: Mapping[str, Any], most: int, *, partition_key: Key | None = None
    ) -> list[Item]:
        if partition_key is not None and self.seen(partition_key) is None:
            return []
        return await super().first(query, parameters, most, partition_key=partition_key)


class Failing(OldReplica):
    """Loses one write, over a replica that lags."""

    fate: Fate

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if (loss := self.fate.of_this_write()) is None:
            return await super().execute(partition_key, writes)
        if loss is Loss.REPEATED:
            await super().execute(partition_key, writes)
            return await super().execute(partition_key, writes)
        if loss in (Loss.NO_ANSWER, Loss.THROTTLED, Loss.DIED_AFTER):
            with suppress(StoreFailed):  # a renewal, or a refused write, and that answer is lost
                await super().execute(partition_key, writes)
            self._sessions._tokens.pop(self.paths.text(partition_key), None)
        if loss in (Loss.DIED_BEFORE, Loss.DIED_AFTER):
            raise ProcessDied
        kind = Kind.THROTTLED if loss is Loss.THROTTLED else Kind.PASSING
        raise StoreFailed(Failure(kind, "lost", answer_lost=True))

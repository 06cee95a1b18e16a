"""What a reaction refuses, and when it is not even asked."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cosmos_outbox.inbox.errors import ReactionRefused
from cosmos_outbox.inbox.reaction_decision import ReactionOutcome, SeenTarget, TargetPlace
from tests.support.reactions import Heap, told
from tests.unit.test_reactions import Memory


@dataclass
class Buried(Memory):
    """Heaps of which some are deleted: the store knows of these for a while."""

    deleted: set[str] = field(default_factory=set)

    async def read(self, place: TargetPlace) -> SeenTarget[Heap]:
        seen = await super().read(place)
        return replace(seen, target=None, deleted=True) if place.target in self.deleted else seen


async def test_a_deleted_target_is_not_made_again_by_a_message_that_would_make_one() -> None:
    memory, message = Buried(deleted={"gone"}), told("gone", "a", makes=True)
    for _ in range(2):
        with pytest.raises(ReactionRefused, match="the target is deleted"):
            await memory.inbox.handle(message)
    assert (memory.outcomes, "gone" in memory.heaps) == (["refused"], False)
    await memory.inbox.handle(told("there is none", "a", makes=True))
    assert memory.marks("there is none") == ("a",)


async def test_each_refusal_is_counted_also_one_that_no_transaction_holds() -> None:
    too_large: Any = ReactionRefused("it has 2 MB")
    memory = Memory(raises=[too_large, too_large])
    inbox, message = memory.inbox, told("h", "a")
    for ask in (inbox.handle, inbox.handle, inbox.apply):
        memory.raises = memory.raises or [too_large]
        with pytest.raises(ReactionRefused, match="2 MB"):
            await ask(message)
    assert inbox.counts == {ReactionOutcome.REFUSED: 3}

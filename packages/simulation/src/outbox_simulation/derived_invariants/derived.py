"""Derives a simulated world's subject from a service and its users: a test writes nothing but the commands."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cosmos_outbox.composition.declarations import EffectDeclaration, Subscriber
from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.inbox.effect import Effect
from cosmos_outbox.inbox.errors import EffectRejected, EffectUnavailable
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.service import Service, Wired
from outbox_simulation.derived_invariants.commands import Calls, Commands, Release
from outbox_simulation.derived_invariants.forms import Form
from outbox_simulation.engine.redeclared import redeclared
from outbox_simulation.engine.system_under_test import SimulatedClient


@dataclass
class Asked:
    """Records the ids of the events that an effect was asked for."""

    run: Effect
    events: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """The errors that ended it and that no effect may raise."""

    async def __call__(self, event: Event) -> None:
        """Runs the effect."""
        self.events.append(event.id)
        try:
            await self.run(event)
        except EffectUnavailable:
            raise
        except EffectRejected:
            last = self.events[::-1].index(event.id)
            del self.events[len(self.events) - 1 - last]
            raise
        except Exception as error:
            self.failures.append(f"{event.action} {event.sequence} of {event.aggregate}: {error!r}")
            raise


@dataclass(frozen=True)
class DerivedSubject:
    """See :class:`outbox_simulation.engine.system_under_test.Subject`."""

    service: Service
    commands: Sequence[Commands[Any] | Calls]
    asked: Mapping[str, Asked]
    read_models: Sequence[str] = ()
    errors: Mapping[type[Exception], int] = field(default_factory=dict)
    forms: list[Form] = field(default_factory=list)
    """The documents that were stored in the end."""
    before: Service | None = None
    earlier: Mapping[str, Commands[Any]] = field(default_factory=dict)
    """The users' commands in the release before, by the type of the aggregates."""

    @property
    def act(self) -> Callable[[SimulatedClient], Awaitable[None]]:
        """Makes one request of a client."""
        return self._act

    @property
    def known(self) -> set[str]:
        """The types of lasting documents, without those of the outbox itself."""
        own = self.service.own.aggregates if self.service.own else ()
        return {EVENT_TYPE, *(each.aggregate_type for each in self.service.aggregates), *own}

    async def _act(self, client: SimulatedClient) -> None:
        chosen = client.chance.choice(self.commands)
        if isinstance(chosen, Calls):
            await chosen.act(client)
            return

        def here(wired: Wired) -> Commands[Any]:
            is_before = wired.service is self.before
            return self.earlier.get(chosen.kind.aggregate_type, chosen) if is_before else chosen

        await chosen.act(client, here)


def subject(
    service: Service, commands: Sequence[Commands[Any] | Calls], before: Release | None = None
) -> DerivedSubject:
    """Returns the subject of one run, whose effects are recorded."""
    asked: dict[str, Asked] = {}
    earlier = {} if before is None else {each.kind.aggregate_type: each for each in before.commands}
    return DerivedSubject(
        _writes_down(service, asked), commands, asked,
        before=None if before is None else _writes_down(before.service, asked), earlier=earlier,
    )  # fmt: skip


def _writes_down(service: Service, asked: dict[str, Asked]) -> Service:
    """Returns a copy of the service, in any version, that records each call of its effects."""

    def anew(each: Subscriber) -> Subscriber:
        if not isinstance(each, EffectDeclaration):
            return each
        known = asked.setdefault(each.name, Asked(each.run))
        return replace(each, run=replace(known, run=each.run))

    return redeclared(service, anew)

"""Converts events of older schema versions to the one that a subscriber's functions are written for.

A subscriber declares, for each event that has changed, a step from a version to the next: a pure function of the
event's data. The steps run one by one, so a gap is an error of the declaration, and a cycle cannot be declared. An
event newer than the last step's result is not converted: its message waits, set aside, for a version of the subscriber
that knows it. The subscriber's own function is wrapped, so every event passes here: a first delivery, a redelivery, or
one from a record.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cosmos_outbox.inbox.errors import EffectRejected, NotApplied
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import reason_of

Upcasts = Mapping[str, Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]]
"""Maps an event's name and a version to the step that converts ``data`` from it to the next version.

Without a step, ``{}``, only version 1 is known. An event that is not named is accepted in any version."""

C = TypeVar("C", bound=Callable[..., Any])


@dataclass(frozen=True)
class Upcasting:
    """The steps of one subscriber."""

    steps: Upcasts = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that no step is missing. Raises ValueError, which names the missing one."""
        for action, steps in self.steps.items():
            if not steps:
                continue
            first, last = min(steps), max(steps)
            if first < 1:
                raise ValueError(f"upcast of {action} has a step from version {first}: versions begin at 1")
            if missing := sorted({*range(first, last)} - {*steps}):
                raise ValueError(
                    f"upcast of {action} has no step from version {missing[0]}: events of version {first} would end "
                    "there. Each step leads to the next version; add this one"
                )

    def __call__(self, event: Event) -> Event:
        """Returns the event in the version that the subscriber knows. Raises NotApplied: it cannot be converted."""
        steps = self.steps.get(event.action)
        if steps is None:
            return event
        first, known, version = min(steps, default=1), max(steps, default=0) + 1, event.schema_version or 1
        if version > known:
            raise NotApplied(
                f"{event.action} {event.id} has version {version}, and this subscriber knows {known}: deploy one that "
                "knows it; the event is tried again"
            )
        if version < first:
            raise NotApplied(
                f"{event.action} {event.id} has version {version}, and upcast begins at {first}: declare the "
                "steps before that; the event is tried again"
            )
        if version == known:
            return event
        data = deepcopy(dict(event.data))  # a step may mutate its argument, and an event may be retried
        for each in range(version, known):
            try:
                data = steps[each](data)
            except Exception as error:
                raise NotApplied(
                    f"the step from version {each} of {event.action} failed for {event.id}: {reason_of(error)}"
                ) from error
        return replace(event, data=data, schema_version=known)

    def before(self, call: C) -> C:
        """Wraps a function of the subscriber, whose last argument is an event, to receive the known version."""
        if not self.steps:
            return call

        def upcasted(*given: Any) -> Any:
            return call(*given[:-1], self(given[-1]))

        return upcasted  # type: ignore[return-value]  # it has the function's signature

    def before_effect(self, run: C) -> C:
        """As :meth:`before`. An effect whose event cannot be converted surely did not take place."""

        async def run_upcast(event: Event) -> None:
            try:
                known = self(event)
            except NotApplied as error:
                raise EffectRejected(str(error)) from error
            await run(known)

        return run_upcast  # type: ignore[return-value]  # it has the effect's signature

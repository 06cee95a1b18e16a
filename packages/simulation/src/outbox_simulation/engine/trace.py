"""Records a run's steps in order: two runs of a seed have the same trace, or the run depends on something real."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outbox_simulation.engine.instance import name_of_current


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a run."""

    at: float
    """Seconds of virtual time since the run began."""
    instance: str
    """The instance that did it, or to which it was done."""
    what: str
    """The kind of step, in a word or two: ``request``, ``crash``, ``publish``."""
    about: str = ""
    """Its subject: an aggregate's id, a lease, a container."""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.at:10.3f} {self.instance:<14} {self.what:<14} {self.about:<38} {self.detail}".rstrip()


class RunTrace:
    """The steps of one run, the oldest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.steps: list[TraceStep] = []
        self._over = False
        self.heard: Callable[[TraceStep], None] | None = None
        """Receives each step."""

    def note(self, what: str, about: str = "", detail: str = "", *, instance: str | None = None) -> None:
        """Records a step of this moment, by the instance whose code runs unless another one is named."""
        if self._over:
            return
        who = name_of_current() if instance is None else instance
        step = TraceStep(self._now(), who, what, about, detail)
        self.steps.append(step)
        if self.heard is not None:
            self.heard(step)

    def end(self) -> None:
        """Ends the trace: later steps come from the cleanup of code, which is no part of the run."""
        self._over = True

    def digest(self) -> str:
        """Returns one short text for all steps."""
        text = "\n".join(f"{step.at!r}|{step}" for step in self.steps)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def about(self, subject: str) -> list[TraceStep]:
        """Returns the steps that name this subject anywhere."""
        return [step for step in self.steps if subject in step.about or subject in step.detail]

    def __iter__(self) -> Iterator[TraceStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

"""Formats a violation as a page: the rule, how to run it again, and the steps and faults of that aggregate only.

Times count from the first step that is shown. Long ids have short names, which the page explains.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from outbox_simulation.engine.trace import TraceStep
from outbox_simulation.invariants.rules import SENTENCES
from outbox_simulation.invariants.violation import Violation

MOST_STEPS = 240
"""The most steps of a page, for readability: the middle is left out."""

BEFALLS = {
    "crash",
    "crashes",
    "pause",
    "pauses",
    "ends",
    "store away",
    "lag",
    "split",
    "bus away",
    "taken away",
    "lock over",
    "connection cut",
    "dead letter",
    "lease lost",
}
"""The steps that no instance makes."""

_GAP_SECONDS = 5.0
"""A longer pause has a line of its own."""

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_WORD = re.compile(r"[\w.@-]*\w")


@dataclass(frozen=True)
class Story:
    """The data of one violation's page."""

    violation: Violation
    seed: int
    again: str
    """The command that runs it again."""
    plan: str
    """The plan of the run, in a line."""
    steps: Sequence[TraceStep]
    """All steps of the run."""
    confirmed: bool = True
    """Whether the rule is also broken first in, first out."""

    @property
    def promise(self) -> str:
        """The broken rule, in a sentence."""
        return SENTENCES.get(self.violation.rule, "")

    @cached_property
    def shown_steps(self) -> list[TraceStep]:
        """The steps that belong to it, with their times from the first of them, and short names for ids."""
        steps = _concerning(self.violation.about, self.steps)
        began = steps[0].at if steps else 0.0
        return [
            replace(
                step,
                at=step.at - began,
                about=self.in_short(step.about),
                detail=self.in_short(step.detail),
            )
            for step in steps
        ]

    @cached_property
    def names(self) -> dict[str, str]:
        """The short name of each id: ``A`` for the violation's subject, ``e1``, ``e2`` ... for all others."""
        steps = _concerning(self.violation.about, self.steps)
        subjects = [
            each for step in steps for each in _ID.findall(step.about) if each in self.violation.about
        ]
        names: dict[str, str] = {}
        for each in dict.fromkeys(subjects):
            names[each] = chr(ord("A") + len(names)) if len(names) < len("ABCDEFGH") else f"A{len(names)}"
        others = (each for step in steps for each in _ID.findall(f"{step.about} {step.detail}"))
        for number, each in enumerate((each for each in dict.fromkeys(others) if each not in names), 1):
            names[each] = f"e{number}"
        return names

    def in_short(self, text: str) -> str:
        """Returns a text with the short names."""
        return _ID.sub(lambda found: self.names.get(found[0], found[0]), text)

    @property
    def instances(self) -> list[str]:
        """The instances involved, in the order of their first steps."""
        return [*dict.fromkeys(step.instance for step in self.shown_steps)]


def page(story: Story) -> str:
    """Returns the whole page."""
    order = "first in, first out" if story.confirmed else "SHUFFLED ONLY: not seen first in, first out"
    return "\n".join(
        [
            f"BROKEN: {story.violation.rule}",
            *([f"  {story.promise}"] if story.promise else []),
            f"  Not so: {story.in_short(story.violation.about)}",
            "",
            f"run again   {story.again}",
            f"seed        {story.seed}",
            f"plan        {story.plan}",
            f"order       {order}",
            f"instances   {', '.join(story.instances)}",
            *(f"{name:<11} {each}" for each, name in story.names.items()),
            "",
            *_table(story.shown_steps),
        ]
    )


@dataclass(frozen=True)
class LeftOut:
    """Replaces so many steps."""

    steps: int


def shortened(steps: Sequence[TraceStep]) -> list[TraceStep | LeftOut]:
    """Returns the steps for a page: if there are too many, the first and the last."""
    if len(steps) <= MOST_STEPS:
        return [*steps]
    half = MOST_STEPS // 2
    return [*steps[:half], LeftOut(len(steps) - 2 * half), *steps[-half:]]


def _table(steps: Sequence[TraceStep]) -> list[str]:
    if not steps:
        return ["No step of the trace names it."]
    widths = [max(len(getattr(step, name)) for step in steps) for name in ("instance", "what", "about")]
    lines: list[str] = []
    before = 0.0
    for step in shortened(steps):
        if isinstance(step, LeftOut):
            lines.append(f"{'':>10}  ... {step.steps} steps are left out ...")
            continue
        if step.at - before > _GAP_SECONDS:
            lines.append(f"{'':>10}  ... {step.at - before:.1f} s later ...")
        before = step.at
        cells = zip((step.instance, step.what, step.about), widths, strict=True)
        columns = "  ".join(f"{text:<{width}}" for text, width in cells)
        lines.append(f"{step.at:>+10.3f}  {columns}  {step.detail}".rstrip())
    return lines


def _concerning(about: str, steps: Sequence[TraceStep]) -> list[TraceStep]:
    """Returns the steps about a violation's subjects and their events, and the faults of the instances involved."""
    subjects = _subjects(about, steps)
    if not subjects:
        return []
    events = {
        each
        for step in steps
        if not subjects.isdisjoint(_WORD.findall(step.about))
        for each in _ID.findall(step.detail)
    }
    meant = [number for number, step in enumerate(steps) if _names_any(step, subjects | events)]
    who = {steps[number].instance for number in meant}
    chosen = {*meant} | {
        number
        for number in range(meant[0], meant[-1] + 1)
        if steps[number].what in BEFALLS and steps[number].instance in who
    }
    return [steps[number] for number in sorted(chosen)]


def _subjects(about: str, steps: Sequence[TraceStep]) -> set[str]:
    """Returns the names in it that steps are about; if none is, the subjects of steps whose details contain one."""
    words = {*_names(about)}
    direct = {word for step in steps for word in words & {*_names(step.about)}}
    if direct:
        return direct
    return {step.about for step in steps if step.about and words & {*_names(step.detail)}}


def _names(text: str) -> list[str]:
    """Returns the words that name something: plain words of a sentence have no digit."""
    return [word for word in _WORD.findall(text) if any(each.isdigit() for each in word) and len(word) > 2]


def _names_any(step: TraceStep, subjects: set[str]) -> bool:
    return step.about in subjects or not subjects.isdisjoint(_WORD.findall(f"{step.about} {step.detail}"))

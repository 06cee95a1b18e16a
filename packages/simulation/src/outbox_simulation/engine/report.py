"""Reports a violation on a readable page, shrunk as far as possible in bounded time.

The page has the command that runs it again, and whether the time was over before nothing shorter was left to try.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.shrink import MOST_RUNS, shrink
from outbox_simulation.engine.story import Story, page
from outbox_simulation.engine.world import SimulatedRun
from outbox_simulation.invariants.violation import Violation

SHRINKING_SECONDS = 120.0
"""The time for one violation."""


@dataclass(frozen=True)
class ViolationReport:
    """Settings of a violation's report."""

    run: Callable[[SimulationPlan], SimulatedRun]
    command: Callable[[SimulationPlan], str]
    """The command that runs this plan again."""
    most_runs: int = MOST_RUNS
    seconds: float = SHRINKING_SECONDS
    """The time of the search for the shortest story; 0: no search."""

    def __call__(self, plan: SimulationPlan, rule: str | None = None) -> str | None:
        """Returns the page of a plan that breaks this rule, or any; None: it breaks none."""
        until = time.monotonic() + self.seconds
        most_runs = self.most_runs if self.seconds else 1
        best: SimulatedRun | None = None

        def again(smaller: SimulationPlan) -> Violation | None:
            nonlocal best, rule
            result = self.run(smaller)
            found = next((each for each in result.violations if rule in (None, each.rule)), None)
            if found is not None:
                best, rule = result, found.rule
            return found

        short = shrink(plan, again, most_runs=most_runs, has_time=lambda: time.monotonic() < until)
        if short is None or best is None:
            return None
        story = Story(
            short.violation,
            plan.seed,
            self.command(short.plan),
            str(short.plan),
            best.trace.steps,
            short.confirmed,
        )
        why = "" if short.ended else ", then its time was over: there may be a shorter one"
        search = f"the shortest story of {short.runs} run(s){why}" if self.seconds else "as it is"
        return "\n".join([page(story), "", f"length      {search}"])

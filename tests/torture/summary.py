"""The printed result of a run: a table, and every violation."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from outbox_simulation.invariants.history import History
from tests.torture.judge import Verdict
from tests.torture.run import Report

_FORWARDED = re.compile(r"forwarded (\d+) event")
_SHOWN = 30


def summary(report: Report) -> str:
    """The table; each row a label and what there is to say."""
    options = report.options
    rows = [
        ("seed", f"{options.seed} ({options.profile}, {options.seconds:g} s)"),
        *_operations(report.history),
        *_strikes(report.history),
        *_events(report),
        ("longest wait for the API", f"{_longest_silence(report):.1f} s"),
        ("longest from answer to arrival", f"{_longest_delivery(report.history):.1f} s"),
        *_quiet(report),
        ("violations", str(len(report.verdict.violations))),
    ]
    lines = [f"{label:<32} {text}" for label, text in rows]
    return "\n".join([*lines, *_verdict(report.verdict)])


def _quiet(report: Report) -> Iterator[tuple[str, str]]:
    if report.healed is not None and not report.verdict.broken_off:
        yield "all quiet after healing", f"{report.ended - report.healed:.1f} s"


def _verdict(verdict: Verdict) -> Iterator[str]:
    for violation in verdict.violations[:_SHOWN]:
        yield f"  {violation}"
    if len(verdict.violations) > _SHOWN:
        yield f"  and {len(verdict.violations) - _SHOWN} more"
    late = f"{verdict.open} missing events and the like are not counted: they may only have been late"
    if verdict.broken_off:
        yield f"BROKEN OFF: {verdict.broken_off}; {late}"
    elif verdict.open:
        yield f"  (the run ended at once, since no wait can mend this; {late})"


def kills(history: History) -> int:
    """How often a process was killed."""
    return sum(strike.done for strike in history.strikes if strike.fault == "kill")


def _operations(history: History) -> Iterator[tuple[str, str]]:
    operations = history.operations().values()
    for call in ("create", "change", "delete"):
        outcomes = Counter(operation.outcome for operation in operations if operation.call == call)
        text = ", ".join(f"{outcomes[name]} {name}" for name in ("acknowledged", "refused", "unknown"))
        yield f"{call} operations", text
    repeated = sum(answer.replayed for answer in history.answers.values())
    yield "attempts", f"{len(history.attempts)}, {repeated} answered as the first time"


def _strikes(history: History) -> Iterator[tuple[str, str]]:
    done = [strike for strike in history.strikes if strike.done]
    killed = Counter(strike.target for strike in done if strike.fault == "kill")
    yield "processes killed", f"{killed.total()} ({_counted(killed)})"
    others = Counter(strike.fault for strike in done if strike.fault != "kill")
    yield "other faults", f"{others.total()} of {len(others)} kinds"
    for fault, times in sorted(others.items()):
        yield f"  {fault}", str(times)
    stored = sum(poison.stored is True for poison in history.poisons)
    lost = sum(each.lost for each in history.stolen)
    yield "messages taken away", f"{len(history.stolen)}, {lost} of them for good"
    versions = sum(map(len, history.shown.values()))
    yield "versions of entries seen", str(versions)
    yield "poison documents", f"{stored} stored, {len(history.parked)} events seen parked"


def _events(report: Report) -> Iterator[tuple[str, str]]:
    events = report.history.events()
    again = sum(len(event.deliveries) - 1 for event in events)
    yield "events delivered", f"{len(events)}, {again} redelivered to the crashing subscriber"
    yield (
        "events forwarded",
        f"{_forwarded(report.options.folder)}, as the relays say, second sendings included",
    )


def _forwarded(folder: Path) -> int:
    """How many events the relays say that they have sent."""
    logs = [*folder.glob("functions*.log"), *folder.glob("worker.log")]
    return sum(int(count) for log in logs for count in _FORWARDED.findall(log.read_text(errors="replace")))


def _longest_silence(report: Report) -> float:
    """The longest time in which no change was acknowledged."""
    answers = report.history.answers.values()
    times = sorted(answer.at for answer in answers if answer.outcome == "acknowledged")
    return max((b - a for a, b in zip([report.started, *times], times, strict=False)), default=0.0)


def _longest_delivery(history: History) -> float:
    """From the answer to a change to the arrival of its event; behind a poisoned one it waits for the operator."""
    poisoned = {poison.aggregate for poison in history.poisons}
    answers = {
        name: answer.at for name, answer in history.answers.items() if answer.outcome == "acknowledged"
    }
    events = [event for event in history.events() if event.cause in answers]
    waits = (event.first.at - answers[event.cause] for event in events if event.aggregate not in poisoned)
    return max(waits, default=0.0)


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(counter.items()))

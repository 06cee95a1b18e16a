"""A story as a sequence chart: a picture that needs no script, fits light and dark, and shows each step once.

An instance, the store and the broker have a lifeline each. A call is an arrow, an answer a dashed one; what was lost
ends half-way in a cross. All else is a note on its instance's lifeline; what befell it, such as a crash, stands out,
and a dead one's lifeline is dotted.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from xml.sax.saxutils import escape

from outbox_simulation.engine.story import BEFALLS, LeftOut, Story, shortened
from outbox_simulation.engine.trace import TraceStep

STORE, BROKER = "store", "broker"


@dataclass(frozen=True)
class Way:
    """How a kind of step is drawn: an arrow between its instance and ``other``."""

    other: str
    """``store`` or ``broker``."""
    back: bool = False
    """From there to the instance."""
    lost: bool = False


WAYS: Mapping[str, Way] = {
    "request": Way(STORE),
    "request lost": Way(STORE, lost=True),
    "answer": Way(STORE, back=True),
    "answer lost": Way(STORE, back=True, lost=True),
    "batch": Way(STORE),
    "lost": Way(STORE, lost=True),
    "feed": Way(STORE, back=True),
    "publish": Way(BROKER),
    "send failed": Way(BROKER, lost=True),
    "bus takes": Way(BROKER),
    "bus drops": Way(BROKER),
    "bus refuses": Way(BROKER, lost=True),
    "bus gives": Way(BROKER, back=True),
    "delivered": Way(BROKER, back=True),
    "completed": Way(BROKER),
}
"""By what a step says that it is."""

ANSWER_LOST = re.compile(r"\b(lost_after|silent)\b")
"""In a step's detail: the store has done it, and its answer does not come."""

_DEATHS = {"crash", "crashes", "ends"}
_FIRST, _COLUMN, _ROW, _HEAD, _MARGIN = 150, 190, 30, 118, 24
_GAP_SECONDS = 1.0
_LONGEST_LABEL = 34

_STYLE = """
  svg { color-scheme: light dark; font-family: ui-sans-serif, system-ui, sans-serif; font-size: 12px;
        --paper: #ffffff; --ink: #1b1f24; --faint: #6b7280; --line: #cbd2d9; --box: #eef2f6;
        --call: #1f5fbf; --answer: #2f7d4f; --bad: #c02626; --bad-box: #fdecec; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #14181d; --ink: #e6e9ed; --faint: #9aa4b0; --line: #3a434d; --box: #222a32;
          --call: #7fb0ff; --answer: #7ccf9d; --bad: #ff8a80; --bad-box: #3a1f20; } }
  .paper { fill: var(--paper); } text { fill: var(--ink); } .faint { fill: var(--faint); }
  .title { font-size: 17px; font-weight: 650; } .bad { fill: var(--bad); } .head { font-weight: 600; }
  .time { fill: var(--faint); font-variant-numeric: tabular-nums; text-anchor: end; }
  .label { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; text-anchor: middle; }
  .mid { text-anchor: middle; }
  .box { fill: var(--box); stroke: var(--line); } .bad-box { fill: var(--bad-box); stroke: var(--bad); }
  .life { stroke: var(--line); stroke-width: 1.5; } .dead { stroke-dasharray: 2 6; }
  .call, .answer, .lost { fill: none; stroke-width: 1.6; }
  .call { stroke: var(--call); } .answer { stroke: var(--answer); stroke-dasharray: 6 4; } .lost { stroke: var(--bad); }
  .call-tip { fill: var(--call); } .answer-tip { fill: var(--answer); }
"""


def chart(story: Story, *, ways: Mapping[str, Way] = WAYS) -> str:
    """The picture, as the text of an SVG file."""
    return _Chart(story, ways).drawn()


class _Chart:
    def __init__(self, story: Story, ways: Mapping[str, Way]) -> None:
        self._story = story
        self._ways = ways
        self._steps = shortened(story.told)
        instances = [each for each in story.instances if each not in (STORE, BROKER)]
        there = {*story.instances} | {way.other for step in story.told if (way := self._way(step))}
        names = [*instances, *(each for each in (STORE, BROKER) if each in there)]
        self._x = {name: _FIRST + _COLUMN // 2 + number * _COLUMN for number, name in enumerate(names)}
        self._turns: dict[str, list[int]] = {name: [_HEAD + 26] for name in self._x}
        """Where each begins to live, and to be dead, by turns."""
        self._y = _HEAD + 44

    def drawn(self) -> str:
        rows = self._rows()
        bottom = self._y + 24
        width, height = max(_FIRST + _COLUMN * len(self._x) + _MARGIN, 760), bottom + _MARGIN
        size = f'width="{width}" height="{height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img">',
                f"<title>{_text(f'Seed {self._story.seed}: {self._story.violation.rule}')}</title>",
                f"<style>{_STYLE}</style>",
                f'<rect class="paper" {size}/>',
                *self._head(width),
                *self._lifelines(bottom),
                *rows,
                "</svg>",
                "",
            ]
        )

    def _head(self, width: int) -> list[str]:
        story, fits = self._story, (width - 2 * _MARGIN) // 7
        lines = [
            ("title bad", f"Broken: {story.violation.rule}"),
            ("", story.promise),
            ("", f"Not so: {story.in_short(story.violation.about)}"),
            ("faint", f"{story.plan}. Again: {story.again}"),
        ]
        return [
            f'<text class="{kind}" x="{_MARGIN}" y="{34 + 21 * number}">{_text(_cut(line, fits))}</text>'
            for number, (kind, line) in enumerate(lines)
        ]

    def _lifelines(self, bottom: int) -> list[str]:
        parts: list[str] = []
        for name, x in self._x.items():
            half = (_COLUMN - 30) // 2
            parts += [
                *(
                    f'<line class="life{" dead" if number % 2 else ""}" x1="{x}" y1="{begin}" x2="{x}" y2="{end}"/>'
                    for number, (begin, end) in enumerate(pairwise([*self._turns[name], bottom]))
                ),
                f'<rect class="box" x="{x - half}" y="{_HEAD}" width="{2 * half}" height="26" rx="5"/>',
                f'<text class="head mid" x="{x}" y="{_HEAD + 17}">{_text(_cut(name, 22))}</text>',
            ]
        return parts

    def _rows(self) -> list[str]:
        parts: list[str] = []
        before = 0.0
        for step in self._steps:
            if isinstance(step, LeftOut):
                parts.append(self._gap(f"{step.steps} steps left out"))
                continue
            if step.at - before > _GAP_SECONDS:
                parts.append(self._gap(f"{step.at - before:.1f} s"))
            before = step.at
            self._y += _ROW
            self._turn(step)
            parts.append(f'<text class="time" x="{_FIRST - 40}" y="{self._y + 4}">{step.at:+.3f} s</text>')
            way = self._way(step)
            parts += self._arrow(step, way) if way else self._note(step)
        return parts

    def _turn(self, step: TraceStep) -> None:
        """A crash ends a life; the next step of an instance by that name begins another."""
        turns = self._turns[step.instance]
        if (step.what in _DEATHS) == (len(turns) % 2 == 1):
            turns.append(self._y)

    def _way(self, step: TraceStep) -> Way | None:
        way = self._ways.get(step.what)
        if way is not None and way.other == STORE and ANSWER_LOST.search(step.detail):
            return replace(way, back=True, lost=True)
        return way

    def _gap(self, what: str) -> str:
        self._y += _ROW
        return f'<text class="time" x="{_FIRST - 40}" y="{self._y + 4}">&#8942; {what}</text>'

    def _arrow(self, step: TraceStep, way: Way) -> list[str]:
        here, there = self._x[step.instance], self._x[way.other]
        if here == there:
            return self._note(step)
        start, end = (there, here) if way.back else (here, there)
        step_right = 1 if end > start else -1
        y, label = self._y, _cut(_words(step), max(_LONGEST_LABEL, abs(end - start) // 7))
        middle = (start + end) // 2
        kind = "lost" if way.lost else "answer" if way.back else "call"
        if way.lost:
            stop = middle + step_right * _COLUMN // 6
            west, east, north, south = stop - 5, stop + 5, y - 5, y + 5
            return [
                f'<line class="lost" x1="{start}" y1="{y}" x2="{stop}" y2="{y}"/>',
                f'<path class="lost" d="M{west} {north}L{east} {south}M{west} {south}L{east} {north}"/>',
                f'<text class="label bad" x="{middle}" y="{y - 8}">{_text(label)}</text>',
            ]
        base = end - step_right * 9
        return [
            f'<line class="{kind}" x1="{start}" y1="{y}" x2="{base}" y2="{y}"/>',
            f'<path class="{kind}-tip" d="M{end} {y}L{base} {y - 4.5}L{base} {y + 4.5}Z"/>',
            f'<text class="label" x="{middle}" y="{y - 6}">{_text(label)}</text>',
        ]

    def _note(self, step: TraceStep) -> list[str]:
        x, label = self._x[step.instance], _cut(_words(step), _LONGEST_LABEL)
        half = max(30, len(label) * 13 // 4 + 8)
        box, ink = ("bad-box", "mid bad") if step.what in BEFALLS else ("box", "mid")
        place = f'x="{x - half}" y="{self._y - 11}" width="{2 * half}" height="22"'
        return [
            f'<rect class="{box}" {place} rx="11"/>',
            f'<text class="{ink}" x="{x}" y="{self._y + 4}">{_text(label)}</text>',
        ]


def _words(step: TraceStep) -> str:
    return " ".join(part for part in (step.what, step.about, step.detail) if part)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _text(text: str) -> str:
    """Escaped; what XML cannot hold is shown as a question mark."""
    return escape("".join(each if each.isprintable() else "?" for each in text), {'"': "&quot;"})

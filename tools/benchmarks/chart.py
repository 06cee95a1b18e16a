"""Draws a line chart as SVG that is readable on a light and on a dark page."""

import math
from collections.abc import Callable
from html import escape

from tools.benchmarks.measured import Chart

_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 44, 56
_COLOURS = ("#2f6fdd", "#d9622b", "#2a9d5c", "#8e44ad")
_STEPS = 5


def draw(chart: Chart) -> str:
    """Returns the chart as a whole document."""
    points = [point for line in chart.lines for point in line.points]
    xs, top = [x for x, _ in points], _rounded_up(max(y for _, y in points))
    across = _logarithmic(min(xs), max(xs)) if chart.logarithmic else _linear(0.0, _rounded_up(max(xs)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_WIDTH / 2, 20, chart.title, size=15),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, chart.across),
        f'<g transform="translate(16 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)">{_text(0, 0, chart.up)}</g>',
    ]
    for step in range(_STEPS + 1):
        value = top * step / _STEPS
        parts.append(_line((_LEFT, _height(value, top)), (_WIDTH - _RIGHT, _height(value, top)), "#dddddd"))
        parts.append(_text(_LEFT - 8, _height(value, top) + 4, _number(value), anchor="end"))
    marks = (
        sorted(set(xs))
        if chart.logarithmic
        else [_rounded_up(max(xs)) * n / _STEPS for n in range(_STEPS + 1)]
    )
    parts += [_text(across(mark), _HEIGHT - _BOTTOM + 18, _number(mark)) for mark in marks]
    for number, line in enumerate(chart.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{across(x):.1f},{_height(y, top):.1f}" for x, y in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(line.points) <= 20:
            parts += [
                f'<circle cx="{across(x):.1f}" cy="{_height(y, top):.1f}" r="3" fill="{colour}"/>'
                for x, y in line.points
            ]
        left = _LEFT + 12 + number * 220
        parts.append(_line((left, _TOP - 12), (left + 18, _TOP - 12), colour, width=2))
        parts.append(_text(left + 24, _TOP - 8, line.name, anchor="start"))
    return "\n".join([*parts, "</svg>", ""])


def _linear(low: float, high: float) -> Callable[[float], float]:
    return lambda x: _LEFT + (x - low) / (high - low) * (_WIDTH - _RIGHT - _LEFT)


def _logarithmic(low: float, high: float) -> Callable[[float], float]:
    place = _linear(math.log(low), math.log(high))
    return lambda x: place(math.log(x))


def _height(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)


def _rounded_up(value: float) -> float:
    """Returns the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 10 or value == int(value) else f"{value:.2g}"


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#333333">'
        f"{escape(text)}</text>"
    )


def _line(start: tuple[float, float], end: tuple[float, float], colour: str, *, width: int = 1) -> str:
    places = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line {places} stroke="{colour}" stroke-width="{width}"/>'

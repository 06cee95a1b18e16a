"""Holds a ratio and its bound: one row of the table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement. ``at_most``: the ratio may not be above the bound; else not below it."""

    name: str
    ours: str
    bare: str
    """The program it is compared with, and that one's figure."""
    figure: float
    wanted: float
    unit: str = ""
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the ratio is within its bound."""
        return self.figure <= self.wanted if self.at_most else self.figure >= self.wanted

    @property
    def shown(self) -> str:
        """The figure, as in the table."""
        return f"{self.figure:.0f}{self.unit}" if self.unit else f"{self.figure:.2f}"

    @property
    def bound(self) -> str:
        """The bound, as in the table."""
        wanted = f"{self.wanted:.0f}{self.unit}" if self.unit else f"{self.wanted:g}"
        return f"{'<=' if self.at_most else '>='} {wanted}"


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """A chart of lines: ``file`` is its name without the ending."""

    file: str
    title: str
    across: str
    up: str
    lines: list[Series]
    logarithmic: bool = False
    """Whether the x axis is logarithmic."""


@dataclass(frozen=True)
class Part:
    """The result of one part of the benchmark."""

    rows: list[Row]
    charts: list[Chart]

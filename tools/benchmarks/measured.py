"""A ratio, with what is wanted of it: one row of the table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement. ``at_most``: the ratio may not be higher than wanted; else not lower."""

    name: str
    ours: str
    bare: str
    """What ours is compared with, and its figure."""
    figure: float
    wanted: float
    unit: str = ""
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether it is as wanted."""
        return self.figure <= self.wanted if self.at_most else self.figure >= self.wanted

    @property
    def shown(self) -> str:
        """The figure, as in the table."""
        return f"{self.figure:.0f}{self.unit}" if self.unit else f"{self.figure:.2f}"

    @property
    def bound(self) -> str:
        """What is wanted, as in the table."""
        wanted = f"{self.wanted:.0f}{self.unit}" if self.unit else f"{self.wanted:g}"
        return f"{'<=' if self.at_most else '>='} {wanted}"


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    name: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """A picture: ``file`` is its name without the ending."""

    file: str
    title: str
    across: str
    up: str
    lines: list[Series]
    logarithmic: bool = False
    """Whether the values across are far apart."""


@dataclass(frozen=True)
class Part:
    """What one part of the benchmark has found."""

    rows: list[Row]
    charts: list[Chart]

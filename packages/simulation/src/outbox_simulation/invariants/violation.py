"""A broken promise, as the checker's rules find it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A broken promise. One that ``may_pass`` can end by waiting."""

    rule: str
    about: str
    may_pass: bool = False

    def __str__(self) -> str:
        return f"{self.rule}: {self.about}"

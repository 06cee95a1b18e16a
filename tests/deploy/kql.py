"""Finds what a Kusto query asks for. It reads the queries of ``deploy/``; it is no interpreter."""

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"//.*$", re.MULTILINE)
_TEXT = re.compile(r"'([^']*)'")
_METRIC = re.compile(r"(?:outbox|messaging)\.[\w.]+")
_ATTRIBUTE = re.compile(r"Properties\['([^']+)'\]")


@dataclass(frozen=True)
class Query:
    """A query as it stands in its file."""

    source: str

    @property
    def text(self) -> str:
        """Without comments."""
        return _COMMENT.sub("", self.source).strip()

    def operators(self) -> list[str]:
        """The table, and the operators that follow."""
        return [" ".join(part.split()) for part in re.split(r"^\|", self.text, flags=re.MULTILINE)]

    @property
    def table(self) -> str:
        """Where the rows come from."""
        return self.operators()[0]

    def attributes(self) -> set[str]:
        """The attributes of metrics."""
        return set(_ATTRIBUTE.findall(self.text))

    def metrics(self) -> set[str]:
        """The metrics by their names."""
        texts = _TEXT.findall(_ATTRIBUTE.sub("", self.text))
        return {text for text in texts if _METRIC.fullmatch(text)}

    def columns(self) -> set[str]:
        """The columns of the table: they begin with a capital, as those that the query makes itself."""
        plain = re.sub(r"\{.*?\}", "", _TEXT.sub("", self.text))
        made = set(re.findall(r"\b([A-Z]\w*) = ", plain))
        return set(re.findall(r"\b[A-Z]\w*", plain)) - made - {self.table}

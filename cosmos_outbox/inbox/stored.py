"""Times are stored as texts."""

from datetime import datetime


def time_or_none(text: str | None) -> datetime | None:
    """A stored time."""
    return None if text is None else datetime.fromisoformat(text)


def text_or_none(time: datetime | None) -> str | None:
    """A time to be stored."""
    return None if time is None else time.isoformat()

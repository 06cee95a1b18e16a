"""Request charges in RU: a sane model, not the service's, which publishes only examples.

A point read of 1 KB is 1 RU and a write of 1 KB about 5 RU plus its index terms:
https://learn.microsoft.com/azure/cosmos-db/request-units
"""

_READ_PER_KB = 1.0
_WRITE_PER_KB = 5.0
_PER_INDEX_TERM = 0.1
_QUERY = 2.3
_PER_QUERY_ITEM = 0.05


def of_read(size: int) -> float:
    """``size`` in bytes."""
    return round(max(1.0, _READ_PER_KB * size / 1024), 2)


def of_write(text: str) -> float:
    terms = text.count('":')
    return round(max(1.0, len(text) / 1024) * _WRITE_PER_KB + terms * _PER_INDEX_TERM, 2)


def of_page(items: int, size: int) -> float:
    """A page of a query or of the feed: ``size`` bytes in all."""
    return round(_QUERY + items * _PER_QUERY_ITEM + size / 10240, 2)

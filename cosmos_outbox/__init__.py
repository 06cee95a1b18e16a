"""The transactional outbox and inbox on Azure Cosmos DB: an event is stored with its change, or neither is.

This is the public face: what stands here, and in the modules ``functions``, ``http`` and ``testing``, keeps its name
and its meaning within a major version. A name is imported when it is first used, so that a process loads what it needs:
no broker before it sends, no Functions where there are none.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosmos_outbox.inbox.entry import After, ListedPage
    from cosmos_outbox.inbox.errors import EffectAway, EffectNotDone
    from cosmos_outbox.inbox.event import Event
    from cosmos_outbox.inbox.form import Condition, EntryForm, Listing
    from cosmos_outbox.inbox.reading import TolerantReader
    from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, input_rule
    from cosmos_outbox.outbox.errors import (
        AggregateNotFound,
        ChangeTooLarge,
        ConcurrentChange,
        OutcomeUnknown,
        PreconditionFailed,
        Throttled,
        Unavailable,
    )
    from cosmos_outbox.outbox.event import DomainEvent, Timestamp, WireModel
    from cosmos_outbox.outbox.unit_of_work import Origin, Receipt, Versioned
    from cosmos_outbox.settings.errors import Misconfigured
    from cosmos_outbox.settings.names import Named, Names
    from cosmos_outbox.wiring.service import Service, Wired

__version__ = "1.0.0rc1"

__all__ = [
    "After",
    "Aggregate",
    "AggregateNotFound",
    "AggregateState",
    "ChangeTooLarge",
    "ConcurrentChange",
    "Condition",
    "DomainEvent",
    "EffectAway",
    "EffectNotDone",
    "EntryForm",
    "Event",
    "ListedPage",
    "Listing",
    "Misconfigured",
    "Named",
    "Names",
    "Origin",
    "OutcomeUnknown",
    "PreconditionFailed",
    "Receipt",
    "Service",
    "Throttled",
    "Timestamp",
    "TolerantReader",
    "Unavailable",
    "Versioned",
    "WireModel",
    "Wired",
    "input_rule",
]  # fmt: skip

_HOME = {
    "After": "inbox.entry",
    "Aggregate": "outbox.aggregate",
    "AggregateNotFound": "outbox.errors",
    "AggregateState": "outbox.aggregate",
    "ChangeTooLarge": "outbox.errors",
    "ConcurrentChange": "outbox.errors",
    "Condition": "inbox.form",
    "DomainEvent": "outbox.event",
    "EffectAway": "inbox.errors",
    "EffectNotDone": "inbox.errors",
    "EntryForm": "inbox.form",
    "Event": "inbox.event",
    "ListedPage": "inbox.entry",
    "Listing": "inbox.form",
    "Misconfigured": "settings.errors",
    "Named": "settings.names",
    "Names": "settings.names",
    "Origin": "outbox.unit_of_work",
    "OutcomeUnknown": "outbox.errors",
    "PreconditionFailed": "outbox.errors",
    "Receipt": "outbox.unit_of_work",
    "Service": "wiring.service",
    "Throttled": "outbox.errors",
    "Timestamp": "outbox.event",
    "TolerantReader": "inbox.reading",
    "Unavailable": "outbox.errors",
    "Versioned": "outbox.unit_of_work",
    "WireModel": "outbox.event",
    "Wired": "wiring.service",
    "input_rule": "outbox.aggregate",
}
"""The module of each name, below ``cosmos_outbox``."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Imports cosmos-changefeed when a name of it is first used here: a service that only writes needs no such package.

Those who follow the change feed need it, and those who ask how far others have followed it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cosmos_outbox.settings.errors import needed

if TYPE_CHECKING:
    from cosmos_changefeed import (
        ChangeFeedContext,
        ChangeFeedError,
        ChangeFeedProcessor,
        Clock,
        FeedLag,
        FeedRangeGone,
        LeaseLag,
        PartitionLag,
        PhysicalPartition,
        ProcessorOptions,
        StartFrom,
        TwoSteps,
        effective_key,
        estimate_lag,
        mend_leases,
        physical_partitions,
        session_lsn,
    )

__all__ = [
    "ChangeFeedContext",
    "ChangeFeedError",
    "ChangeFeedProcessor",
    "Clock",
    "FeedLag",
    "FeedRangeGone",
    "LeaseLag",
    "PartitionLag",
    "PhysicalPartition",
    "ProcessorOptions",
    "StartFrom",
    "TwoSteps",
    "effective_key",
    "estimate_lag",
    "mend_leases",
    "physical_partitions",
    "session_lsn",
]


if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error

    def __getattr__(name: str) -> Any:
        """Raises Misconfigured: the package is not installed."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        needed("relay")
        return getattr(importlib.import_module("cosmos_changefeed"), name)

"""A change feed processor for the asynchronous azure-cosmos SDK, which has none: every change, at least once.

Instances share the physical partitions of one container through lease documents in the schema of the .NET SDK's
processor, so that a .NET processor or an Azure Functions deployment can take the leases over and give them back.
"""

from cosmos_changefeed.clock import Clock
from cosmos_changefeed.errors import (
    CallCancelled,
    ChangeFeedError,
    FeedRangeGone,
    LeaseLost,
    LeasesUnusable,
)
from cosmos_changefeed.feed import PhysicalPartition, effective_key, physical_partitions
from cosmos_changefeed.handling import ChangeFeedContext, Changes, Handler, OnError, TwoSteps
from cosmos_changefeed.heartbeat import Heartbeat
from cosmos_changefeed.lag import FeedLag, LeaseLag, PartitionLag, estimate_lag, session_lsn
from cosmos_changefeed.lease import EpkRange
from cosmos_changefeed.lease_repair import mend_leases
from cosmos_changefeed.options import ProcessorOptions, StartFrom
from cosmos_changefeed.processor import ChangeFeedProcessor

__all__ = [
    "CallCancelled",
    "ChangeFeedContext",
    "ChangeFeedError",
    "ChangeFeedProcessor",
    "Changes",
    "Clock",
    "EpkRange",
    "FeedLag",
    "FeedRangeGone",
    "Handler",
    "Heartbeat",
    "LeaseLag",
    "LeaseLost",
    "LeasesUnusable",
    "OnError",
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

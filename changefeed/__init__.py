"""A change feed processor for the asynchronous azure-cosmos SDK, which has no processor: every change, at least once.

Instances share the physical partitions of one container through lease documents in the schema of the .NET SDK's
processor, so that a .NET processor or an Azure Functions deployment can take the leases over and give them back.
"""

from changefeed.errors import ChangeFeedError, FeedRangeGone, LeaseLost, LeasesUnusable
from changefeed.feed import PhysicalPartition, effective_key, physical_partitions
from changefeed.handling import ChangeFeedContext, Changes, Handler, OnError, TwoSteps
from changefeed.lag import FeedLag, LeaseLag, PartitionLag, estimate_lag, session_lsn
from changefeed.lease import EpkRange
from changefeed.mending import mend_leases
from changefeed.options import ProcessorOptions, StartFrom
from changefeed.processor import ChangeFeedProcessor
from changefeed.pulse import Pulse

__all__ = [
    "ChangeFeedContext",
    "ChangeFeedError",
    "ChangeFeedProcessor",
    "Changes",
    "EpkRange",
    "FeedLag",
    "FeedRangeGone",
    "Handler",
    "LeaseLag",
    "LeaseLost",
    "LeasesUnusable",
    "OnError",
    "PartitionLag",
    "PhysicalPartition",
    "ProcessorOptions",
    "Pulse",
    "StartFrom",
    "TwoSteps",
    "effective_key",
    "estimate_lag",
    "mend_leases",
    "physical_partitions",
    "session_lsn",
]

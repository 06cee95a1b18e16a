"""The real SDK over a store in memory: what it sends is served, what befalls it is what it would raise."""

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import pytest
from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.kernel.clock import Sources, using
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.testing.simulation import sdk_clock
from cosmos_outbox.testing.simulation.instance import SimulatedInstance
from cosmos_outbox.testing.simulation.loop import Loop
from cosmos_outbox.testing.simulation.store import CALM, SimulatedStore, StoreFaults
from cosmos_outbox.testing.simulation.trace import RunTrace
from devstack.cosmos.in_memory import in_memory

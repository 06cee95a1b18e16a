"""Limits faults to bursts in most runs: under permanent faults few operations reach the states that could break."""

import asyncio
from dataclasses import replace

from outbox_simulation.engine.fault_injection import FaultyTransport
from outbox_simulation.engine.fault_plan import CALM as CALM_BUS
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.store import CALM as CALM_STORE
from outbox_simulation.engine.store import SimulatedStore

_STORMS_END = 0.7
_STORM_SECONDS, _FAIR_SECONDS = (1.0, 15.0), (1.0, 20.0)


async def change_weather(plan: SimulationPlan, store: SimulatedStore, bus: FaultyTransport) -> None:
    """Changes the fault rates until it is cancelled."""
    chance = plan.chance("weather")
    ends = chance.random() < _STORMS_END
    while True:
        store.faults, bus.rates = plan.store, plan.bus
        await asyncio.sleep(chance.uniform(*_STORM_SECONDS) if ends else plan.seconds)
        store.faults, bus.rates = CALM_STORE, plan.bus.in_fair_weather
        await asyncio.sleep(chance.uniform(*_FAIR_SECONDS))


def calm_down(store: SimulatedStore, bus: FaultyTransport) -> None:
    """Ends all faults."""
    store.faults, bus.rates = CALM_STORE, replace(CALM_BUS, longest_way_seconds=0.01)

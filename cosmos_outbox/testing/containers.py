"""Converts a service's containers to devstack's declarations."""

from collections.abc import Iterator, Mapping

from cosmos_outbox.cosmos.inbox.store import CosmosNames
from cosmos_outbox.preflight.plan import Needed, needed, needed_by_subscriber
from cosmos_outbox.service import Service
from cosmos_outbox.settings.environment import Settings

try:
    from devstack import app_file
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("devstack"):
        raise
    raise ImportError("a test of a service needs devstack: pip install 'cosmos-outbox[testing]'") from error

_FOREVER = -1


def of_service(service: Service, environment: Mapping[str, str]) -> app_file.Cosmos:
    """Returns the containers of a service that publishes. Raises Misconfigured."""
    settings: Settings = service.settings(environment)
    return _made(settings.cosmos_database, needed(settings, service))


def of_subscriber(service: Service, names: CosmosNames) -> app_file.Cosmos:
    """Those of a service that only subscribes, in a database of its own."""
    return _made(names.database, needed_by_subscriber(names, service))


def _made(database: str, all_needed: tuple[Needed, ...]) -> app_file.Cosmos:
    return app_file.Cosmos(containers=list(_containers(database, all_needed)))


def _containers(database: str, all_needed: tuple[Needed, ...]) -> Iterator[app_file.Container]:
    for need in all_needed:
        yield app_file.Container(
            database=database, name=need.name, partition_key=[*need.paths.paths],
            ttl=_ttl(need), composite_indexes=[list(each) for each in need.composite],
        )  # fmt: skip


def _ttl(need: Needed) -> int | None:
    if need.own is not None:
        return need.own.default_ttl
    return _FOREVER if need.ttl_needed else None

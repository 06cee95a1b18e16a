"""Converts what a service needs to devstack's declarations."""

from collections.abc import Mapping

from cosmos_outbox.preflight.resources import resources
from cosmos_outbox.service import Service

try:
    from devstack import app_file
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("devstack"):
        raise
    raise ImportError("a test of a service needs devstack: pip install 'cosmos-outbox[testing]'") from error


def of_service(service: Service, environment: Mapping[str, str]) -> app_file.App:
    """Returns the containers, topics and subscriptions of a service. Raises Misconfigured."""
    found = resources(service, environment)
    return app_file.App.model_validate(
        {name: found[name] for name in found.keys() & {"cosmos", "servicebus"}}
    )

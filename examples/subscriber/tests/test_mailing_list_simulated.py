"""Whatever befalls the messages, the list has everybody as the publisher's API shows them."""

from collections.abc import Mapping
from random import Random

import pytest

from cosmos_outbox import Service
from examples.subscriber.service import blind, service
from outbox_simulation import Publishes, simulate


def event(action: str, luck: Random, *properties: str) -> tuple[str, Mapping[str, str]]:
    any_of = {"name": ["Ada", "Grace"], "email": ["ada@contoso.com", "grace@contoso.com"]}
    return action, {each: luck.choice(any_of[each]) for each in properties}


PEOPLE = Publishes(
    "person",
    first=lambda luck: event("PersonAddedEvent", luck, "name", "email"),
    then=[
        lambda luck: event("PersonRenamedEvent", luck, "name"),
        lambda luck: event("PersonEmailChangedEvent", luck, "email"),
    ],
    last="PersonDeletedEvent",
)


@pytest.mark.parametrize("subscriber", [service, blind], ids=["with the API", "blind"])
def test_whatever_befalls_the_messages_the_list_is_right(subscriber: Service) -> None:
    simulate(subscriber, PEOPLE)

"""Whatever fails, no event of a person is lost, and the directory shows everybody as they are."""

from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from examples.fastapi.app import service
from examples.fastapi.person import Details, Person
from outbox_simulation import Commands, simulate


def details(luck: Random) -> Details:
    return Details(name=luck.choice(["Ada", "Grace"]), email=luck.choice(["a@contoso.com", "g@contoso.com"]))


@pytest.mark.long  # the orders are simulated at every run
def test_whatever_fails_no_event_is_lost_and_the_directory_is_right() -> None:
    def add(luck: Random, at: datetime) -> Person:
        return Person.add(details(luck), at=at)

    def change(person: Person, luck: Random, at: datetime) -> None:
        person.delete(at=at) if luck.random() < 0.1 else person.change(details(luck), at=at)

    commands = Commands(Person, create=add, change=[change])
    simulate(service, commands, forms=Path(__file__).with_name("forms"))

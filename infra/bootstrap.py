"""The composition root of the contact service: its names, its containers and its use cases."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from application.directory import Directory, DirectoryEntry, entry_of, first, project
from cosmos_outbox import Named, Names, Service
from cosmos_outbox.inbox.healing import Healing
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.service import Wired
from cosmos_outbox.wiring.subscription import ReadModel, Subscriber, Subscription
from domain.contact import Contact
from infra.directory import FORM, CosmosDirectory

service = Service(
    "contacts",
    aggregates=[Contact],
    names=Names(
        database="contacts",
        container="contacts",
        topic="contact-events",
        leases="leases",
        parked="parked-events",
        claims="claims",
        set_aside="set-aside",
    ),
    untyped=Contact.aggregate_type,  # the article's events do not name their aggregate's type
)

DIRECTORY = service.read_model(
    "contact-directory",
    of=Contact,
    form=FORM,
    state_of=entry_of,
    project=project,
    first=first,
    subscription=Named("SERVICEBUS_SUBSCRIPTION", "contact-directory"),
    container=Named("COSMOS_DIRECTORY_CONTAINER", "directory"),
)


@dataclass(frozen=True)
class Application:
    """The contact service and its directory, wired."""

    wired: Wired

    @property
    def outbox(self) -> Outbox:
        """The outbox, which stores and forwards."""
        return self.wired.outbox

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.wired.settings

    @property
    def directory(self) -> Directory:
        """The directory's search."""
        return CosmosDirectory(self.read_model.listing)

    @property
    def read_model(self) -> ReadModel[DirectoryEntry]:
        """The read model of the directory, built from events and from the contacts."""
        return self.wired.read_model(DIRECTORY)

    @property
    def subscriber(self) -> Subscriber:
        """The subscriber, which receives the events."""
        return self.wired.subscriptions[DIRECTORY.name].subscriber

    @property
    def healing(self) -> Healing[DirectoryEntry]:
        """The healing, which finds changes whose events never came."""
        assert self.read_model.healing is not None, "the contacts are its source"
        return self.read_model.healing

    @property
    def resources(self) -> AsyncExitStack:
        """Closes all clients."""
        return self.wired.resources

    async def check(self) -> None:
        """Returns if the store answers. Raises Unavailable, Throttled or Misconfigured."""
        await self.wired.check()

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """The subscriptions that the subscriber worker serves."""
        return self.wired.subscriptions


def wire(environment: Mapping[str, str]) -> Application:
    """Builds the contact service from settings. Opens no connection. Raises Misconfigured."""
    return Application(service.wire(environment))


def application() -> Application:
    """Returns the contact service of this process; call it inside the running loop. Raises Misconfigured."""
    return Application(service())

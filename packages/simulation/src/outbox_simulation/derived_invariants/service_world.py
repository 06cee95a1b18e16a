"""Runs a service in the simulated world and checks it against its own declaration, without code for the test."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from cosmos_outbox.cli.publish_again import CLOCKS_DIFFER_SECONDS, RepublishingPlan, republish
from cosmos_outbox.composition.declarations import (
    EffectDeclaration,
    ReactionDeclaration,
    ReadModelDeclaration,
)
from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, REACTION_TYPE, SCHEMA_VERSION
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments, last
from cosmos_outbox.cosmos.inbox.entries import TYPE as ENTRY_TYPE
from cosmos_outbox.cosmos.maintenance.event_list import Span
from cosmos_outbox.cosmos.store.partition_key import at as value_at
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.republish import RepublishingProgress
from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.derived_invariants.derived import DerivedSubject
from outbox_simulation.derived_invariants.forms import Form
from outbox_simulation.derived_invariants.found import (
    AggregateFound,
    ClientOutcome,
    Document,
    LeftBehind,
    ReadModelFound,
    StoredChange,
    StoredEvent,
    TakenMessage,
)
from outbox_simulation.derived_invariants.reactions import reaction
from outbox_simulation.derived_invariants.rules import broken
from outbox_simulation.engine.bus_queue import Taken
from outbox_simulation.engine.deployment import Size
from outbox_simulation.engine.final_checks import messages_wait
from outbox_simulation.engine.operator import PASSING, list_set_aside, reasons
from outbox_simulation.engine.processes import EPOCH
from outbox_simulation.engine.walking import walk_all
from outbox_simulation.engine.watching import Watcher, written
from outbox_simulation.engine.world import World
from outbox_simulation.invariants.violation import Violation

QUIET_SECONDS, PATIENCE_SECONDS = 4.0, 300.0


class ServiceWorld(World):
    """A small deployment, since faults of many processes of a kind are tested with the library itself."""

    quiet_seconds, patience_seconds = QUIET_SECONDS, PATIENCE_SECONDS

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert isinstance(self.of, DerivedSubject), "made by subject()"
        self._of = self.of
        self.size = Size(
            hosts=False,
            relays=1 if self.of.before is None else 2,
            subscribers=min(len(self.of.service.subscribers), 1 if self.of.before is None else 2),
            clients=2,
            idle_seconds=2.0,
            operator_seconds=(1.0, 6.0),
            strike_seconds=(2.0, 4.0, 8.0),
        )
        self._watcher = self._changes = ChangesSeen(self)
        self._is_whole = not self._of.service.subscribers

    async def _look(self) -> list[Violation]:
        if failed := [*self._failed()]:
            return failed
        if not self._is_whole and any(step.what == "stolen" for step in self.trace):
            return [await self._publish_again()]
        if not await self._settle(self.desk):
            try:
                aside = self.loop.begin(self.desk.instance, list_set_aside(self.desk.wired))
                waits = reasons(await aside).items()
            except PASSING as error:
                waits = {"what is set aside": repr(error)}.items()
            detail = "; ".join(f"{event}: {reason}" for event, reason in waits) or "something is parked"
            return [Violation("not settled", detail, may_pass=True)]
        self._changes.received(self.ground.bus.taken)
        if self.loop.time() <= self._quiet_at():
            return [Violation("not quiet", "something was written just now", may_pass=True)]
        ended = [Violation("process ended", f"{each.instance}: {each.why}") for each in self.history.ended]
        return [*ended, *messages_wait(self.ground), *broken(await self.found())]

    async def _publish_again(self) -> Violation:
        """Publishes lost messages again as an operator does: no reaction and no effect finds them by itself."""
        waits = Violation("not published again", "events were stored just now", may_pass=True)
        now = int(EPOCH.timestamp() + self.loop.time())
        if self.loop.time() - self._changes.newest <= 2 * CLOCKS_DIFFER_SECONDS:
            return waits
        walked = self.loop.begin(self.desk.instance, walk_all(self.desk.wired.subscriptions))
        span = Span(int(EPOCH.timestamp()), now - CLOCKS_DIFFER_SECONDS)
        plan, progress = RepublishingPlan(span, UUID(int=self.plan.seed, version=4)), RepublishingProgress()
        try:
            if not await walked:
                return replace(waits, about="what no message reported waits for the next walk")
            if not any(
                isinstance(each, ReactionDeclaration | EffectDeclaration)
                for each in self._of.service.subscribers
            ):
                self._is_whole = True
                return waits
            await self.loop.begin(self.desk.instance, republish(self.desk.wired, plan, progress))
        except PASSING as error:
            return replace(waits, about=repr(error))
        self._is_whole = progress.whole
        return replace(waits, about=str(progress))

    def _failed(self) -> Iterator[Violation]:
        """Yields a violation for each command or effect that ends with an undeclared error."""
        for step in self.trace:
            if step.what == "fails":
                yield Violation("command fails", f"{step.detail}; name an error that is meant in refuses")
        for name, asked in self._of.asked.items():
            for failure in asked.failures:
                yield Violation("effect fails", f"{name}: {failure}")

    async def found(self) -> LeftBehind:
        """Returns all current records and documents."""
        service, settings = self._of.service, self._settings
        stored = await self.documents(settings.cosmos_container)
        forms = [
            Form("COSMOS_CONTAINER", dict(each)) for each in stored if each.get("type") in self._of.known
        ]
        found = LeftBehind(
            outcomes=[*self._outcomes()],
            changes=self._changes.changes,
            taken=self._changes.messages,
            effects={
                each.name: (each.aggregate_type, self._of.asked[each.name].events, each.kinds)
                for each in service.subscribers
                if isinstance(each, EffectDeclaration)
            },
            in_order=not any(step.what == "stolen" for step in self.trace),
        )
        for kind in self._kinds():
            for name, aggregate in sources(kind, stored).items():
                found.aggregates[AggregateKey(kind.type, name)] = aggregate
        for each in service.subscribers:
            if isinstance(each, ReadModelDeclaration):
                entries = await self.documents(settings.name(each.container))
                kept = (entry for entry in entries if entry.get("type") == ENTRY_TYPE)
                forms += [Form(each.container.setting, dict(entry)) for entry in kept]
                found.read_models.append(read_model(each, stored, entries))
            elif isinstance(each, ReactionDeclaration):
                found.reactions.append(reaction(each, f"/{service.name}", found, stored))
        self._of.forms[:] = forms
        return found

    def _kinds(self) -> Iterator[SourceDocuments]:
        for each in self._of.service.aggregates:
            yield SourceDocuments.of_library(each.aggregate_type)

    def _outcomes(self) -> Iterator[ClientOutcome]:
        for cause, answer in self.history.answers.items():
            body, asked = answer.body or {}, self.history.attempts[cause]
            keyed = answer.operation if asked.key is not None else ""
            if "events" in body or answer.outcome == "refused" or keyed:
                about = answer.aggregate or asked.aggregate or "a new one"
                decided = "refused" in body
                yield ClientOutcome(cause, about, answer.outcome, body.get("events"), keyed, decided)

    async def documents(self, container: str) -> list[Document]:
        """Returns all documents of a container."""
        async with self.deployment.container(container) as proxy:
            return [item async for item in proxy.read_all_items()]


def sources(kind: SourceDocuments, stored: Sequence[Document]) -> dict[str, AggregateFound]:
    """Returns the aggregates among the documents, by their ids."""
    found: dict[str, AggregateFound] = {}
    for item in stored:
        name = value_at(item, kind.id)
        if isinstance(name, str) and kind.is_of(dict(item), name):
            library = kind.sequence == "/data/lastSequence"
            found[name] = AggregateFound(
                last(value_at(item, kind.sequence)),
                bool(value_at(item, kind.deleted)),
                item["data"] if library else item,
            )
    return found


def read_model(
    declared: ReadModelDeclaration[Any], stored: Sequence[Document], entries: Sequence[Document]
) -> ReadModelFound:
    """Returns a read model with its current entries."""
    kind = declared.documents or SourceDocuments.of_library(declared.aggregate_type)
    form = declared.form
    return ReadModelFound(
        declared.name,
        declared.aggregate_type,
        declared.state_of,
        declared.project,
        lambda item: form.read(dict(item)) if form.is_of(dict(item)) else None,
        sources(kind, stored),
        {each["id"]: each for each in entries if each.get("type") == ENTRY_TYPE},
    )


class ChangesSeen(Watcher):
    """Records each transaction as the store carried it out, and each message as the topic took it."""

    def __init__(self, world: World) -> None:
        super().__init__(world.history, feed="", entries=frozenset())
        self.changes: list[StoredChange] = []
        self.messages: list[TakenMessage] = []
        names = {world.deployment.settings.cosmos_container}
        self._paths = tuple(f"/colls/{each}/docs" for each in names)
        self._kinds = {each.aggregate_type for each in world.of.service.aggregates}

    def saw(self, at: float, request: SentRequest, response: StoreResponse) -> None:
        """Records a request that was carried out."""
        if request.kind != "batch" and request.method not in ("POST", "PUT", "PATCH", "DELETE"):
            return
        query = any(
            name in request.headers
            for name in ("x-ms-documentdb-isquery", "x-ms-cosmos-is-query-plan-request")
        )
        if query or response.status >= 300 or response.status == 207:
            return
        if not any(path in request.path for path in self._paths):
            return
        documents = [*written(request)]
        events = [stored_event(each) for each in documents if each.get("type") == EVENT_TYPE]
        document = next((each["data"] for each in documents if each.get("type") in self._kinds), None)
        if events:
            self.newest = at
            in_order = sorted(events, key=lambda each: each.sequence or 0)
            records = [each["data"]["reaction"] for each in documents if each.get("type") == REACTION_TYPE]
            self.changes.append(StoredChange(document, in_order, next(iter(records), "")))

    def received(self, taken: list[Taken]) -> None:
        """Records the messages that the topic has taken since the last call."""
        for each in taken[self._taken :]:
            self.newest = max(self.newest, each.at)
            message = each.sent.message
            key = AggregateKey(
                str(message.properties["aggregateType"]), str(message.properties["cloudEvents_subject"])
            )
            self.messages.append(TakenMessage(message.id, key, message.data))
        self._taken = len(taken)


def stored_event(document: Mapping[str, Any]) -> StoredEvent:
    data, kind = document["data"], document["aggregateType"]
    owner = document.get("aggregateId") or data.get(f"{kind}Id") or document.get("partitionKey")
    key = AggregateKey(kind, str(owner))
    return StoredEvent(
        data["id"], key, data.get("sequence"), data["action"], str(data.get("correlationId")), data,
        document.get(SCHEMA_VERSION),
    )  # fmt: skip

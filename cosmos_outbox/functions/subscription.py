"""A subscriber's functions: the trigger, and the timers that go on with what waits."""

import azure.functions as func

from cosmos_outbox.functions.receiving import add_trigger
from cosmos_outbox.functions.timers import told_in_a_line
from cosmos_outbox.settings.names import Named
from cosmos_outbox.wiring.declared import ReadModelOf, Subscriber
from cosmos_outbox.wiring.located import AnyService
from cosmos_outbox.wiring.reactions import ReactionOf
from cosmos_outbox.wiring.subscribing import ForeignReadModel, ForeignSubscriber

WALK_SECONDS = 200.0
"""What a run of the walk may take, less than ``functionTimeout``; the next run goes on from there."""

AnySubscriber = Subscriber | ForeignSubscriber


def subscription_functions(service: AnyService, of: AnySubscriber) -> func.Blueprint:
    """Messages -> what the subscriber keeps or does; the timers that go on with what waits. Raises Misconfigured."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor
    name = of.name.replace("-", "_")

    add_trigger(app, service, of.name, of.subscription, _topic_of(of))

    @app.function_name(f"watch_{name}")
    @app.timer_trigger(arg_name="timer", schedule="30 * * * * *")
    async def watch(timer: func.TimerRequest) -> None:
        """Every minute: collects dead letters, and tries again what was set aside."""
        with told_in_a_line("what was set aside waits"):
            await service().subscriptions[of.name].subscriber.watch()

    if isinstance(of, ReadModelOf) or (isinstance(of, ForeignReadModel) and of.has_source):
        _add_walk(app, service, of.name, name)
    return app


def _topic_of(of: AnySubscriber) -> Named | None:
    return of.topic if isinstance(of, ReactionOf) else None


def _add_walk(app: func.Blueprint, service: AnyService, of: str, name: str) -> None:
    @app.function_name(f"walk_{name}")
    @app.timer_trigger(arg_name="timer", schedule="30 0 * * * *")
    async def walk(timer: func.TimerRequest) -> None:
        """Every hour: begins the walk of this day, or goes on with it."""
        healing = service().subscriptions[of].healing
        assert healing is not None, "a read model with a source has a walk"
        with told_in_a_line("the walk waits"):
            await healing.run(seconds=WALK_SECONDS)

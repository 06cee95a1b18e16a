"""Runs the work of the triggers and timers outside Functions: a worker and a function app are interchangeable."""

from typing import TYPE_CHECKING

from cosmos_outbox.kernel.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from cosmos_outbox.worker import draining as draining
    from cosmos_outbox.worker import relay as relay
    from cosmos_outbox.worker import subscriber as subscriber

if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "cosmos_outbox.worker.draining": (),
            "cosmos_outbox.worker.relay": (),
            "cosmos_outbox.worker.subscriber": (),
        },
    )

"""Test kit for a service: runs its declaration over a store in memory, and on a local Azure.

========================  ===========================================================================================
``raised``, ``stored``    an aggregate alone: the events of its changes, and the aggregate as it is read again
``in_memory``             use cases, calls, read models and effects, in milliseconds: no broker, no socket
``call``                  a call of a function app, beside ``in_memory``
``message``, ``Message``  a message of another team's event, or one that cannot be read
``LocalAzure``            the deployed code on a local Azure on free ports, with the resources that the service declares
``Program``               a process under test on it, to be killed, paused and started again
``eventually``            waits for a condition, with a deadline
========================  ===========================================================================================

All but the first, ``message`` and ``Message`` need ``pip install 'cosmos-outbox[testing]'``; nothing deployed
imports this package.
"""

from typing import TYPE_CHECKING

from cosmos_outbox.kernel.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from cosmos_outbox.testing.changes import raised, stored
    from cosmos_outbox.testing.functions import call
    from cosmos_outbox.testing.local import LocalAzure, Program, eventually
    from cosmos_outbox.testing.memory import InMemory, NotInMemory, in_memory
    from cosmos_outbox.testing.messages import Message, message
    from cosmos_outbox.testing.publisher_contract import Broker, PublisherContract
    from cosmos_outbox.testing.store_contract import SubscriberStoreContract

__all__ = [
    "Broker",
    "InMemory",
    "LocalAzure",
    "Message",
    "NotInMemory",
    "Program",
    "PublisherContract",
    "SubscriberStoreContract",
    "call",
    "eventually",
    "in_memory",
    "message",
    "raised",
    "stored",
]

if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "cosmos_outbox.testing.functions": ("call",),
            "cosmos_outbox.testing.local": (
                "LocalAzure",
                "Program",
                "eventually",
            ),
            "cosmos_outbox.testing.memory": (
                "InMemory",
                "NotInMemory",
                "in_memory",
            ),
            "cosmos_outbox.testing.messages": (
                "Message",
                "message",
            ),
            "cosmos_outbox.testing.publisher_contract": (
                "Broker",
                "PublisherContract",
            ),
            "cosmos_outbox.testing.changes": (
                "raised",
                "stored",
            ),
            "cosmos_outbox.testing.store_contract": ("SubscriberStoreContract",),
        },
    )

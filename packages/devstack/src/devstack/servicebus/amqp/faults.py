"""What a client of Service Bus must survive, made to happen to its sends, its tokens or its connections."""

from dataclasses import dataclass
from typing import Literal

from devstack import fault_api

_OF_SENDS = ("fail-before-commit", "drop-after-commit", "throttle", "full")


class Fault(fault_api.Fault):
    """``fail-before-commit``, ``drop-after-commit``, ``throttle`` (the error ``server-busy``) and ``full`` (the error
    ``resource-limit-exceeded``, which the SDKs do not repeat) meet sends; ``refuse-mixed`` batches of several sessions;
    ``slow`` answers to sends and settlements; ``unauthorized`` tokens.

    ``detach`` and ``disconnect`` wait for nothing: they end every link but those for tokens, with ``condition``, or
    every connection.
    """

    kind: Literal[
        "fail-before-commit",
        "drop-after-commit",
        "throttle",
        "full",
        "refuse-mixed",
        "slow",
        "unauthorized",
        "detach",
        "disconnect",
    ]
    condition: str = "amqp:link:detach-forced"
    """The AMQP error of the links that are detached."""


class Faults(fault_api.Faults[Fault]):
    """The faults that are still to happen."""

    def happens(self, kind: str) -> Fault | None:
        """The fault of that kind that this request meets, counted as having happened."""
        return self.take(lambda fault: fault.kind == kind and self.hits(fault))

    def happens_to_send(self, kind: str) -> bool:
        """The same for the kinds that meet sends, one fault a send: the one that was asked for first."""
        first = next((fault.kind for fault in self.pending() if fault.kind in _OF_SENDS), None)
        return first == kind and self.happens(kind) is not None


@dataclass
class Traffic:
    """What senders have sent to entities since the server began, refused or not."""

    transfers: int = 0
    """A message, or a batch of messages: what is answered as one."""
    messages: int = 0

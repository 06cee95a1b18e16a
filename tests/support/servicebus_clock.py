"""The Service Bus SDK takes time, ids and luck from where the product does, as the simulation has it of the others.

Beside the modules that it shares with them it has two functions ``utc_now`` of its own, for tokens and for locks. It
asks the type ``datetime`` itself in one place only, for a message with a time to live, of which there is none here.
"""

import sys

from azure.servicebus._common import utils as common
from azure.servicebus._pyamqp import utils as pyamqp

from cosmos_outbox.kernel import clock
from outbox_simulation.engine import sdk_clock

PACKAGE = "azure.servicebus"

_THEIRS = {id(common.utc_now), id(pyamqp.utc_now)}


def install() -> None:
    """Replace them in all modules of the SDK. Again is as good as once."""
    sdk_clock.install(PACKAGE)
    for name, loaded in list(sys.modules.items()):
        if name.startswith(PACKAGE):
            for attribute, value in list(vars(loaded).items()):
                if id(value) in _THEIRS:
                    setattr(loaded, attribute, clock.utc_now)

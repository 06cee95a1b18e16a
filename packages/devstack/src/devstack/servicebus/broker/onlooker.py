"""An onlooker sees each step of a namespace as it is made, before any client hears of it.

Nobody looks on at a broker that serves sockets; a simulation does.
"""

from devstack.servicebus.broker.message import Message
from devstack.servicebus.codec.message import ParsedMessage


class Onlooker:
    """Looks away: see :meth:`devstack.servicebus.in_memory.ServiceBusInMemory.show`."""

    def check(self, path: str, parsed: ParsedMessage) -> None:
        """A message is about to be accepted. Raises AmqpError: it is refused, with all that came with it."""

    def accepted(self, path: str, parsed: ParsedMessage, number: int) -> None:
        """It got this number, and is in each queue that takes it."""

    def dropped(self, path: str, parsed: ParsedMessage) -> None:
        """Its id is one that the window knows."""

    def given(self, path: str, message: Message) -> None:
        """A receiver has it, locked."""

    def completed(self, path: str, message: Message) -> None:
        """It is done with."""

    def buried(self, path: str, message: Message) -> None:
        """It is a dead letter from now on."""

    def lock_over(self, path: str, session: str) -> None:
        """A session's lock has ended without its holder."""


NOBODY = Onlooker()

"""What a connection says goes out in the order in which it was said, and nothing goes out after its end.

Everything below the socket writes here and knows no socket: its owner gives three functions.
"""

from collections.abc import Callable
from dataclasses import dataclass

MIN_FRAME_SIZE = 512
"""The smallest max-frame-size that AMQP lets a peer announce."""


@dataclass
class Wire:
    """The way out to one client."""

    send: Callable[[bytes], None]
    """Hand bytes to the socket."""
    finish: Callable[[], None]
    """End the socket when what was sent is gone."""
    cut: Callable[[], None]
    """End the socket at once, without a word, as a network does."""
    max_frame_size: int = MIN_FRAME_SIZE
    """The client's."""
    is_writable: bool = True
    """False while the client does not read."""
    has_ended: bool = False

    def write(self, data: bytes) -> None:
        if not self.has_ended:
            self.send(data)

    def close(self) -> None:
        """Nothing more is said, and nothing that was received is looked at any more."""
        if not self.has_ended:
            self.has_ended = True
            self.finish()

    def abort(self) -> None:
        """As :meth:`close`, at once."""
        if not self.has_ended:
            self.has_ended = True
            self.cut()

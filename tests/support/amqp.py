"""The broker's SDK speaks to devstack's broker over connections in memory: what is written arrives in its order or not.

Each end's protocol is called in the context of its owner: the client's instance, or the world for the broker. So a
crashed client reads nothing more, and the broker goes on. What befalls a connection is drawn from the ``random.Random``
that is given; time is the running loop's.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from random import Random
from typing import Any, Self

from outbox_simulation.engine.bus_queue import Note
from outbox_simulation.engine.instance import SimulatedInstance, current

_LIKELIEST = 0.004
"""Of one trouble, at one write: a send is some ten of them."""


@dataclass(frozen=True)
class Lines:
    """Chances of one connecting, or of one write; 0: never."""

    refused: float = 0.0
    """Nobody listens."""
    cut: float = 0.0
    """The connection ends; what was written is not carried any more."""
    half_open: float = 0.0
    """Nothing is carried from now on, and neither side learns of it."""
    slow: float = 0.0
    """What is written takes up to the longest way, and what follows it waits behind it."""
    longest_way_seconds: float = 3.0
    way_seconds: float = 0.001

    @classmethod
    def drawn(cls, random: Random) -> Self:
        """About half of the troubles, each as often as the seed says."""
        chances = {
            each.name: random.uniform(0.0, _LIKELIEST) if random.random() < 1 / 2 else 0.0
            for each in fields(cls)
            if not each.name.endswith("seconds")
        }
        return cls(**chances, longest_way_seconds=random.choice([0.3, 3.0, 25.0]))


QUIET = Lines()


class AmqpNetwork:
    """The way to one broker. ``connect`` is what a loop's ``create_connection`` calls."""

    def __init__(self, random: Random, lines: Lines = QUIET, note: Note | None = None) -> None:
        self.lines = lines
        self.serve: Callable[[], asyncio.Protocol] | None = None
        """Makes the broker's end of a connection; None: nobody listens."""
        self.connections: dict[_Connection, None] = {}
        """Those that are open at one end at least."""
        self.note: Note = note or _nobody
        self._random = random
        self._world = contextvars.copy_context()
        self._away_until = 0.0

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], *_: Any, **__: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """As :meth:`asyncio.loop.create_connection`. Raises ConnectionRefusedError."""
        await asyncio.sleep(self.way())
        if self.serve is None or self._now() < self._away_until or self.happens(self.lines.refused):
            self.note("refused", "broker")
            raise ConnectionRefusedError("nobody listens in this simulation")
        connection = _Connection(self, current.get())
        client = _End(connection, protocol_factory(), contextvars.copy_context())
        server = _End(connection, self.serve(), self._world.copy())
        connection.ends = client, server
        self.connections[connection] = None
        server.soon(lambda: server.protocol.connection_made(server))
        client.protocol.connection_made(client)
        return client, client.protocol

    def go_away(self, seconds: float) -> None:
        """Every connection ends, and for so long none is made."""
        self._away_until = self._now() + seconds
        self.note("broker away", detail=f"for {seconds:.1f} s")
        for connection in list(self.connections):
            connection.cut()

    def happens(self, chance: float) -> bool:
        """Whether it happens now."""
        return chance > 0 and self._random.random() < chance

    def way(self) -> float:
        """How long the next way takes."""
        if self.happens(self.lines.slow):
            return self._random.uniform(0.0, self.lines.longest_way_seconds)
        return self.lines.way_seconds

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class _Connection:
    """What lies between two ends."""

    ends: "tuple[_End, _End]"
    """The client's and the broker's."""

    def __init__(self, network: AmqpNetwork, owner: SimulatedInstance | None) -> None:
        self.network = network
        self.owner = owner
        self.carries = True

    def other(self, end: "_End") -> "_End":
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    def carry(self, end: "_End", data: bytes) -> None:
        """Bytes from one end to the other, unless something befalls them."""
        network = self.network
        if self.carries and network.happens(network.lines.cut):
            network.note("connection cut", _name(self.owner))
            self.cut()
        elif self.carries and network.happens(network.lines.half_open):
            network.note("connection dead", _name(self.owner))
            self.carries = False
        elif self.carries:
            self.other(end).comes(data, network.way())

    def cut(self) -> None:
        """It ends for both, behind what is on its way."""
        if self.carries:
            for end in self.ends:
                end.comes(ConnectionResetError("the connection was cut"), 0.0)
        self.carries = False

    def ended(self) -> None:
        """One of the ends is gone."""
        if all(end.gone for end in self.ends):
            self.network.connections.pop(self, None)


_Comes = bytes | None | Exception
"""Bytes, the end of the stream, or the end of the connection with an error."""


class _End(asyncio.Transport):
    """One end, as its protocol sees it."""

    def __init__(
        self, connection: _Connection, protocol: asyncio.BaseProtocol, context: contextvars.Context
    ) -> None:
        super().__init__()
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol
        self.gone = False
        """Whether the protocol knows that the connection is lost."""
        self._connection = connection
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._coming: deque[_Comes] = deque()
        self._last = 0.0
        """When what is on its way will all be here."""
        self._closing = False
        self._reading = True

    def soon(self, call: Callable[[], object]) -> None:
        """Call it as this end's owner."""
        self._loop.call_soon(call, context=self._context)

    def comes(self, what: _Comes, seconds: float) -> None:
        """It arrives after so long, behind what is on its way already."""
        self._coming.append(what)
        self._last = max(self._last, self._loop.time() + seconds)
        self._loop.call_at(self._last, self._arrived, context=self._context)

    def _arrived(self) -> None:
        # The next in turn, whichever timer fires first.
        if self.gone or not self._coming or not self._reading:
            return
        what = self._coming.popleft()
        if isinstance(what, bytes):
            if not self._closing:
                self.protocol.data_received(what)
        elif what is None:
            self.protocol.eof_received()
            self._lose(None)
        else:
            self._lose(what)

    def _lose(self, error: Exception | None) -> None:
        if self.gone:
            return
        self._closing = self.gone = True
        self._connection.ended()
        self.protocol.connection_lost(error)

    # -- asyncio

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send the bytes."""
        if not self._closing and data:
            self._connection.carry(self, bytes(data))

    def close(self) -> None:
        """The other end gets what was written, then the end."""
        if self._closing:
            return
        self._closing = True
        if self._connection.carries:
            self._connection.other(self).comes(None, self._connection.network.lines.way_seconds)
        self.soon(lambda: self._lose(None))

    def abort(self) -> None:
        """The connection ends at once."""
        if self.gone:
            return
        self._closing = True
        if self._connection.carries:
            self._connection.other(self).comes(ConnectionResetError("the other end has gone"), 0.0)
        self.soon(lambda: self._lose(None))

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be; when the world is over, all are."""
        return self._closing or self._loop.is_closed()

    def pause_reading(self) -> None:
        """Nothing arrives until it is resumed."""
        self._reading = False

    def resume_reading(self) -> None:
        """What waits arrives."""
        self._reading = True
        for _ in self._coming:
            self.soon(self._arrived)

    def is_reading(self) -> bool:
        """Whether what comes arrives."""
        return self._reading and not self._closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket to name."""
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another one takes over."""
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Its present holder."""
        return self.protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is room for all."""

    def get_write_buffer_size(self) -> int:
        """What is written is on its way."""
        return 0

    def can_write_eof(self) -> bool:
        """A stream ends with its connection."""
        return False


def _name(instance: SimulatedInstance | None) -> str:
    return "world" if instance is None else instance.name


def _nobody(what: str, about: str = "", detail: str = "") -> None:
    """Takes nothing down."""

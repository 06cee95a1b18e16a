"""A process under a supervisor that behaves as its first argument says; no part of the project's own services."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def say(text: str, stream: int = 1) -> None:
    os.write(stream, text.encode() + b"\n")


def wait_for_the_end() -> None:
    """As the contract asks: until SIGTERM or the end of standard input."""
    sys.stdin.buffer.read()


def serve(port: int) -> None:
    with listen(port) as listener:
        say("loading", 2)
        say(f"READY http://127.0.0.1:{listener.getsockname()[1]}/")
        say("serving", 2)
        wait_for_the_end()


def never_ready(_port: int) -> None:
    wait_for_the_end()


def deaf(port: int) -> None:
    """Ignores SIGTERM and leaves a child of its own, whose pid it prints."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with listen(port) as listener, subprocess.Popen(["sleep", "600"]) as grandchild:
        say(f"READY http://127.0.0.1:{listener.getsockname()[1]}/")
        say(f"grandchild {grandchild.pid}", 2)
        while True:
            time.sleep(60)


def talkative(port: int) -> None:
    with listen(port) as listener:
        say(f"READY http://127.0.0.1:{listener.getsockname()[1]}/")
        say("x" * 200_000, 2)
        os.write(2, b"\xff is no UTF-8\n")
        wait_for_the_end()


def refuse(_port: int) -> None:
    say("loading", 2)
    say("fake: the cupboard is bare; fill it", 2)
    sys.exit(2)


def crash(_port: int) -> None:
    say("Traceback: something broke", 2)
    sys.exit(1)


def by_turns(port: int) -> None:
    """Serves, then once crashes at the start, then serves: what a turn does depends on a file that counts them."""
    count = Path(os.environ["TURNS"])
    turn = int(count.read_text()) if count.exists() else 0
    count.write_text(str(turn + 1))
    (crash if turn == 1 else serve)(port)


def refuse_later(port: int) -> None:
    """Serves once; the next time it cannot start."""
    marker = Path(os.environ["TURNS"])
    if marker.exists():
        refuse(port)
    marker.touch()
    serve(port)


MANNERS = {
    each.__name__: each
    for each in (serve, never_ready, deaf, talkative, refuse, crash, by_turns, refuse_later)
}

if __name__ == "__main__":
    MANNERS[sys.argv[1]](int(sys.argv[2].partition("=")[2]))

"""Every record is one line that starts with when and which function; only a traceback adds more.

``12:34:56.789 FunctionName  message``, to standard error. Records from outside an invocation are the host's.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar

HOST = "host"
_current_function: ContextVar[str] = ContextVar("function", default=HOST)


@contextlib.contextmanager
def logged_as(function_name: str) -> Iterator[None]:
    """Records of this task, and of threads that it hands its context to, carry the function's name."""
    token = _current_function.set(function_name)
    try:
        yield
    finally:
        _current_function.reset(token)


class _LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(function)s  %(level)s%(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.function = _current_function.get()
        record.level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return super().format(record)


def _is_of_use(record: logging.LogRecord) -> bool:
    # azure.functions says so of every app without HTTP functions; no host here asks for keys.
    return not record.getMessage().startswith("Auth level is not applied")


def _is_logged_by_no_listener(record: logging.LogRecord) -> bool:
    # azure-servicebus raises an error of its own (a link whose connection ends while it opens, say) and logs
    # it with its traceback as well; what is raised, a listener logs once.
    return not (
        record.name.startswith("azure.servicebus") and record.msg.startswith("Unexpected error occurred")
    )


def configure_worker() -> None:
    """The app's own records from INFO up, the SDKs' from WARNING up."""
    _configure()


def configure_host() -> None:
    """As in the app, but for what the listeners log themselves."""
    handler = _configure()
    handler.addFilter(_is_logged_by_no_listener)


def _configure() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_is_of_use)
    handler.setFormatter(_LineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("azure", "aiohttp", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It warns at every attempt while Cosmos DB is away, which the listeners log once.
    logging.getLogger("azure.cosmos.LocationCache").setLevel(logging.ERROR)
    return handler

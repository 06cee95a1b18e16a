"""The service itself answers each request, whatever stands in its path; what is no HTTP leaves no byte in the log."""

import logging
from collections.abc import MutableMapping
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

EVERY_PATH = r"/{path:[\s\S]*}"
"""A line break too: ``.`` does not match one, and aiohttp would answer with a text of its own."""


def http_runner(application: web.Application, **options: Any) -> web.AppRunner:
    """Runs ``application`` without a log of its requests; ``options`` are those of aiohttp's ``AppRunner``."""
    return web.AppRunner(application, access_log=None, logger=_Discreet(_log, {}), **options)


class _Discreet(logging.LoggerAdapter[logging.Logger]):
    """aiohttp logs the bytes of a request that it could not read; they may hold a key, or look like lines of a log."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            return f"{msg}: it is no HTTP ({type(error).__name__})", {**kwargs, "exc_info": None}
        return msg, kwargs


_log = logging.getLogger(__name__)

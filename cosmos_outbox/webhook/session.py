"""An answer is the answer to the request before it: no request leaves on a connection where one lies that came unasked.

A server that refuses a request without having read its body may take the body for a request, and answer that too. The
next event would be taken for accepted, or be parked, by an answer that is not its own.
"""

import ssl

import aiohttp
from aiohttp.abc import AbstractResolver

from cosmos_outbox.settings.transports import Webhook
from cosmos_outbox.webhook.addresses import CheckedResolver


class Unasked(aiohttp.ClientConnectionError):
    """There was an answer before the request: nothing was sent, and the connection is closed."""


class _Request(aiohttp.ClientRequest):
    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if conn.protocol is not None and conn.protocol.should_close:
            raise Unasked
        return await super().send(conn)


def open_session(
    target: Webhook, resolver: AbstractResolver | None, tls: ssl.SSLContext | bool
) -> aiohttp.ClientSession:
    """What posts to the target, at addresses that may be asked alone; the caller closes it."""
    connector = aiohttp.TCPConnector(
        resolver=CheckedResolver(target, resolver), use_dns_cache=False, limit=target.concurrency, ssl=tls
    )
    return aiohttp.ClientSession(
        connector=connector,
        request_class=_Request,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=target.request_seconds),
    )

"""Wrong keys, wrong entities and expired tokens, as azure-servicebus and a raw client see them."""

import asyncio
import hashlib
import hmac
import json
import time
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote_plus

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_as
from devstack.servicebus.codec.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from devstack.testing import Service
from devstack.testing.amqp import RawClient, message, raw_client, raw_socket
from servicebus.support import (
    KEY,
    KEY_NAME,
    administration,
    client,
    connection_string,
    new_queue,
)


def sas(resource: str, *, expires_in: float = 60, key_name: str = KEY_NAME, key: str = KEY) -> str:
    """A shared access signature, written as its documentation says."""
    encoded, expiry = quote_plus(resource), str(int(time.time() + expires_in))
    signature = b64encode(
        hmac.new(key.encode(), f"{encoded}\n{expiry}".encode(), hashlib.sha256).digest()
    ).decode()
    return f"SharedAccessSignature sr={encoded}&sig={quote_plus(signature)}&se={expiry}&skn={key_name}"


async def anonymous(raw: RawClient) -> None:
    """A connection that has proved nothing."""
    raw.writer.write(SASL_HEADER)
    await raw.header()
    raw.writer.write(frame(0, p.SaslInit("ANONYMOUS", b""), SASL_FRAME))
    await raw.expect(p.SaslOutcome)
    raw.writer.write(AMQP_HEADER)
    await raw.header()
    raw.send(p.Open("raw", None, 65536))
    await raw.expect(p.Open)
    await raw.begin()


async def put_token(raw: RawClient, token: str, name: str) -> int:
    status, _, _ = await raw.request(
        "$cbs", "put-token", token, type="servicebus.windows.net:sastoken", name=f"sb://localhost/{name}"
    )
    return status


@pytest.mark.parametrize("credentials", [{"key": "wrong"}, {"key_name": "nobody"}])
async def test_a_wrong_key_is_an_authentication_error(
    servicebus_server: Service, credentials: dict[str, str]
) -> None:
    text = connection_string(servicebus_server.port, **credentials)
    async with ServiceBusClient.from_connection_string(text, retry_total=0) as sdk:
        with pytest.raises(ServiceBusAuthenticationError):
            await sdk.get_topic_sender("order-events").send_messages(ServiceBusMessage("x"))
    async with administration(servicebus_server, **credentials) as admin:
        with pytest.raises(ClientAuthenticationError):
            await admin.get_topic("order-events")


async def test_an_entity_that_is_not_there_is_refused(servicebus_server: Service) -> None:
    async with client(servicebus_server, retry_total=0) as sdk:
        with pytest.raises(ServiceBusError):
            await sdk.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))


async def test_tokens_are_checked_on_cbs(servicebus_server: Service) -> None:
    claims = urlsafe_b64encode(json.dumps({"exp": int(time.time()) - 5}).encode()).decode().rstrip("=")
    async with new_queue(servicebus_server) as queue, raw_socket(servicebus_server.port) as raw:
        await anonymous(raw)
        here = f"sb://localhost/{queue}"

        assert await put_token(raw, sas(here, key="wrong"), queue) == 401
        assert await put_token(raw, sas(here, expires_in=-1), queue) == 401
        assert await put_token(raw, sas("sb://localhost/another"), queue) == 401
        assert await put_token(raw, "SharedAccessSignature sr=x", queue) == 401
        assert await put_token(raw, "no token at all", queue) == 401
        assert await put_token(raw, f"header.{claims}.signature", queue) == 401
        assert await put_token(raw, sas("sb://localhost/no-such"), "no-such") == 404
        assert await put_token(raw, sas(here), queue) == 202
        assert await put_token(raw, sas("sb://localhost/"), queue) == 202
        assert await put_token(raw, sas(here), f"{queue}/$management") == 202


async def test_a_link_needs_a_token_for_its_entity(servicebus_server: Service) -> None:
    async with new_queue(servicebus_server) as queue, raw_socket(servicebus_server.port) as raw:
        await anonymous(raw)
        with pytest.raises(AssertionError, match="unauthorized-access"):
            await raw.attach_sender(queue)
        assert await put_token(raw, sas(f"sb://localhost/{queue}"), queue) == 202

        sender = await raw.attach_sender(queue)

        assert await raw.deliver(sender, message()) == p.Accepted()
        with pytest.raises(AssertionError, match="unauthorized-access"):
            await raw.attach_sender("order-events")


async def test_a_link_outlives_its_token_only_when_it_was_renewed(servicebus_server: Service) -> None:
    async with new_queue(servicebus_server) as queue, raw_socket(servicebus_server.port) as raw:
        await anonymous(raw)
        here = f"sb://localhost/{queue}"
        assert await put_token(raw, sas(here, expires_in=1.9), queue) == 202
        sender = await raw.attach_sender(queue)
        assert await put_token(raw, sas(here, expires_in=5.9), queue) == 202
        await asyncio.sleep(2)  # the life of the first token

        assert await raw.deliver(sender, message()) == p.Accepted()
        error = read_as(p.ErrorField, (await raw.expect(p.Detach)).error)

        assert error is not None
        assert error.condition == "amqp:unauthorized-access"


async def test_plain_proves_the_key_without_a_token(servicebus_server: Service) -> None:
    async with new_queue(servicebus_server) as queue, raw_client(servicebus_server.port) as raw:
        assert await raw.deliver(await raw.attach_sender(queue), message()) == p.Accepted()

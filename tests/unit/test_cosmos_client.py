"""The client goes through a proxy that the environment names, and does not look for one at each request."""

from typing import Any

import pytest

from cosmos_outbox.cosmos.store import client
from cosmos_outbox.settings.connections import Connection

LOCAL = Connection(connection_string="AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5")


@pytest.mark.parametrize("proxy", ["", "http://proxy:8080"])
async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    made: list[dict[str, Any]] = []
    kind = client.TrackingTransport

    def noted(**options: Any) -> client.TrackingTransport:
        made.append(options)
        return kind(**options)

    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    if proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.setattr(client, "TrackingTransport", noted)
    await client.cosmos_client(LOCAL, None).close()
    assert made == [{"use_env_settings": bool(proxy), "session": None}]

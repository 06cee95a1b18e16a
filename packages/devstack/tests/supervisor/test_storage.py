"""An app that declares queues and blob containers finds them in an Azurite that starts and ends with its stack."""

from pathlib import Path

import pytest
from azure.storage.blob.aio import BlobServiceClient
from azure.storage.queue.aio import QueueServiceClient

from devstack.settings import read_settings, storage_connection
from devstack.testing.command import running_command
from devstack.testing.eventually import eventually
from devstack.testing.processes import alive_with
from devstack.testing.service import Service, port_of

TOML = """
[storage]
queues = ["thumbnails"]
blob_containers = ["pictures"]
"""
ACCOUNT = (
    "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"
)


@pytest.mark.parametrize(
    ("values", "run"),
    [
        ({}, True),
        ({"AzureWebJobsStorage": "UseDevelopmentStorage=true"}, True),
        ({"AzureWebJobsStorage": storage_connection(1, 2)}, True),
        ({"AzureWebJobsStorage": ACCOUNT}, False),
        ({"AzureWebJobsStorage__queueServiceUri": "https://contoso.queue.core.windows.net/"}, False),
        ({"AzureWebJobsStorage__queueServiceUri": "http://127.0.0.1:10001/devstoreaccount1"}, True),
    ],
)
def test_it_is_run_unless_the_connection_leads_elsewhere(
    tmp_path: Path, values: dict[str, str], *, run: bool
) -> None:
    (tmp_path / "devstack.toml").write_text(TOML)
    settings = read_settings(values, tmp_path, functions=False)
    assert settings.storage_setting == ("AzureWebJobsStorage" if run else None)
    assert ({"blobs", "queues"} <= set(settings.wanted_ports())) is run


def test_an_app_that_declares_nothing_there_gets_none(tmp_path: Path) -> None:
    (tmp_path / "devstack.toml").write_text("")
    assert read_settings({}, tmp_path, functions=False).storage_setting is None


@pytest.mark.long
async def test_what_the_app_declares_is_made_and_nothing_is_left_running(tmp_path: Path) -> None:
    (tmp_path / "devstack.toml").write_text(TOML)
    with running_command(tmp_path, tmp_path / "run", "--no-functions") as stack:
        blobs, queues, *_ = stack.line("Storage")
        connection = storage_connection(port_of(blobs), port_of(queues))
        async with QueueServiceClient.from_connection_string(connection) as client:
            assert [queue.name async for queue in client.list_queues()] == ["thumbnails"]
        async with BlobServiceClient.from_connection_string(connection) as blob_client:
            assert [container.name async for container in blob_client.list_containers()] == ["pictures"]
        assert stack.end() == 0
        assert stack.processes() == []


@pytest.mark.long
@pytest.mark.parametrize("way", ["terminate", "kill"])
async def test_one_that_runs_alone_leaves_nothing_running(tmp_path: Path, way: str) -> None:
    service = Service("storage", tmp_path / "data").start()
    assert alive_with(f"--location={tmp_path / 'data'}")
    getattr(service, way)()
    await eventually(lambda: not alive_with(f"--location={tmp_path / 'data'}"))

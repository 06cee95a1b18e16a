"""All settings of the stack are read and checked here, once, before the first process starts.

A value that cannot be right is refused with the name of the setting and what to put there. The environment
beats the settings file, as with ``func start``.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from devstack.app_file import App, Storage, read_app
from devstack.connection_settings import COSMOS_ADDRESS, SERVICEBUS_ADDRESS, find_connection
from devstack.local_settings import KEYS_FILE, default_file, read_values
from devstack.ports import Ports, read_ports
from devstack.service import CannotStart

COSMOS_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
"""The key of every Cosmos DB emulator, public by design (https://learn.microsoft.com/azure/cosmos-db/emulator)."""

SERVICEBUS_CONNECTION = (
    "Endpoint=sb://{};SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)
"""The connection string of every Service Bus emulator, with a place for the host and its port."""


def cosmos_connection(port: int) -> str:
    """The connection string of the local Cosmos DB."""
    return f"AccountEndpoint=http://127.0.0.1:{port}/;AccountKey={COSMOS_KEY};"


STORAGE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of every Azurite, public by design (https://learn.microsoft.com/azure/storage/common/storage-use-azurite)."""


def storage_connection(blob_port: int, queue_port: int) -> str:
    """The connection string of the local Blob and Queue Storage."""
    account = "devstoreaccount1"
    return (
        f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={STORAGE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{blob_port}/{account};QueueEndpoint=http://127.0.0.1:{queue_port}/{account};"
    )


def servicebus_connection(port: int) -> str:
    """The connection string of the local Service Bus; with its admin port, the one to administer it."""
    return SERVICEBUS_CONNECTION.format(f"127.0.0.1:{port}")


@dataclass(frozen=True)
class StackSettings:
    """What one stack runs and where. A service whose connection points away from this machine is not run."""

    folder: Path
    """The app's: of ``devstack.toml`` and, where functions are run, ``function_app.py``."""
    app: App
    file: Path | None
    """The app's settings file, if it has one."""
    data: Path
    ports: Ports
    servicebus_config: Path | None
    environment: Mapping[str, str]
    """What every service's process starts with; the host gets the connection strings on top."""
    cosmos_setting: str | None
    """The setting through which the app finds Cosmos DB; None when that leads elsewhere, and none is run here."""
    servicebus_setting: str | None
    """The same for Service Bus."""
    storage_setting: str | None
    """The same for Blob and Queue Storage; None also where the app declares nothing there."""
    runs_functions: bool
    asks_for_keys: bool = False
    """Whether the Functions host asks callers for keys."""

    @property
    def keys_file(self) -> Path | None:
        """Where the keys are that the Functions host asks for; None: it asks for none."""
        return self.data / "functions" / KEYS_FILE if self.runs_functions and self.asks_for_keys else None

    def wanted_ports(self) -> dict[str, int]:
        """The ports of the services that are run, by their name in :class:`Ports`."""
        wanted = {}
        if self.cosmos_setting:
            wanted["cosmos"] = self.ports.cosmos
        if self.servicebus_setting:
            wanted["servicebus"] = self.ports.servicebus
            wanted["servicebus_admin"] = self.ports.servicebus_admin
        if self.storage_setting:
            wanted["blobs"] = self.ports.blobs
            wanted["queues"] = self.ports.queues
        if self.runs_functions:
            wanted["functions"] = self.ports.functions
            if self.app.functions.web:
                wanted["web"] = self.ports.web
        return wanted


def read_settings(
    environment: Mapping[str, str],
    folder: Path,
    file: Path | None = None,
    *,
    functions: bool = True,
    keys: bool = False,
) -> StackSettings:
    """Read the environment, the app's ``devstack.toml`` in ``folder`` and its settings file.

    The settings file is by default its ``local.settings.json``, else the sample, else none. Raises
    :class:`CannotStart` for the first value that cannot be right.
    """
    folder = folder.absolute()
    file = file.absolute() if file else default_file(folder)
    effective = read_values(file) | {name: value for name, value in environment.items() if value}
    app = read_app(folder, effective)
    if functions and not (folder / "function_app.py").is_file():
        raise CannotStart(
            f"there is no {folder / 'function_app.py'}: name the folder that has one with --app, "
            "or start without the Functions host: --no-functions"
        )
    settings = StackSettings(
        folder=folder,
        app=app,
        file=file,
        data=Path(environment.get("DEVSTACK_DATA") or folder / ".devstack").absolute(),
        ports=read_ports(environment),
        servicebus_config=_servicebus_config(environment.get("SERVICEBUS_CONFIG", "")),
        environment=environment,
        cosmos_setting=_setting_of_local(effective, app.cosmos.connection, "AccountEndpoint", COSMOS_ADDRESS),
        servicebus_setting=_setting_of_local(
            effective, app.servicebus.connection, "Endpoint", SERVICEBUS_ADDRESS
        ),
        storage_setting=_storage_setting(effective, app.storage),
        runs_functions=functions,
        asks_for_keys=keys,
    )
    if not settings.wanted_ports():
        raise CannotStart(
            "nothing to start: both connections lead elsewhere, and --no-functions leaves out the host"
        )
    return settings


def _storage_setting(values: Mapping[str, str], storage: Storage) -> str | None:
    if not (storage.queues or storage.blob_containers):
        return None
    name = storage.connection
    text = values.get(name, "").strip()
    if text.rstrip(";").lower() == "usedevelopmentstorage=true":
        return name
    part = "QueueEndpoint" if storage.queues else "BlobEndpoint"
    if text and f"{part}=".lower() not in text.lower():  # of an account in Azure, by its name
        return None
    return _setting_of_local(values, name, part, f"{part[0].lower()}{part[1:-8]}ServiceUri")


def _servicebus_config(text: str) -> Path | None:
    if not text:
        return None
    file = Path(text).absolute()
    if not file.is_file():
        raise CannotStart(f"SERVICEBUS_CONFIG names {file}, which is no file; point it to a Config.json")
    return file


def _setting_of_local(values: Mapping[str, str], name: str, part: str, address_part: str) -> str | None:
    """The setting that decides where the connection ``name`` leads, when it leads to this machine."""
    connection = find_connection(values, name, address_part)
    if connection is None:
        return name
    text = connection.connection_string
    place = connection.address if text is None else _part(connection.setting, text, part)
    return connection.setting if _is_loopback(connection.setting, place) else None


def _part(setting: str, connection: str, name: str) -> str:
    for part in connection.split(";"):
        key, equals, value = part.partition("=")
        if equals and value and key.strip().lower() == name.lower():
            return value.strip()
    raise CannotStart(
        f'{setting} is no connection string: it has no "{name}=..." part; compare it with the sample settings'
    )


def _is_loopback(setting: str, address: str) -> bool:
    try:
        host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    except ValueError as error:
        raise CannotStart(f"{setting} names no valid address: {error}") from error
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""What the stack makes of its environment and its settings file, and the one line it has for each mistake."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.ports import Ports, check_ports, read_ports
from devstack.service import CannotStart
from devstack.settings import StackSettings, read_settings
from supervisor.shop import SHOP

REMOTE_COSMOS = "AccountEndpoint=https://contoso.documents.azure.com:443/;AccountKey=c2VjcmV0;"
REMOTE_SERVICEBUS = (
    "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=app;SharedAccessKey=c2VjcmV0"
)


def _file(folder: Path, **values: str) -> Path:
    file = folder / "settings.json"
    file.write_text(json.dumps({"IsEncrypted": False, "Values": values}))
    return file


def _read(environment: dict[str, str], file: Path, *, functions: bool = True) -> StackSettings:
    return read_settings(environment, SHOP, file, functions=functions)


def _problem(environment: dict[str, str], file: Path) -> str:
    with pytest.raises(CannotStart) as raised:
        _read(environment, file)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_without_anything_set_all_three_run_on_the_usual_ports(tmp_path: Path) -> None:
    settings = _read({}, _file(tmp_path))
    assert settings.ports == Ports(functions=7071, cosmos=8081, servicebus=5672, servicebus_admin=5300)
    assert [each.name for each in settings.app.cosmos.containers] == ["orders", "leases"]
    assert settings.data == SHOP / ".devstack"
    assert set(settings.wanted_ports()) == {"cosmos", "servicebus", "servicebus_admin", "functions"}


def test_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = _file(tmp_path, SHOP_DATABASE="from-file", SHOP_CONTAINER="from-file")
    settings = _read(
        {"SHOP_DATABASE": "from-environment", "COSMOS_PORT": "0", "DEVSTACK_DATA": str(tmp_path / "data")},
        file,
    )
    container = settings.app.cosmos.containers[0]
    assert (container.database, container.name) == ("from-environment", "from-file")
    assert settings.ports.cosmos == 0
    assert settings.data == tmp_path / "data"


def test_an_empty_variable_counts_as_unset_as_in_the_functions_host(tmp_path: Path) -> None:
    file = _file(tmp_path, SHOP_DATABASE="from-file", COSMOS=REMOTE_COSMOS)
    settings = _read({"SHOP_DATABASE": "", "COSMOS": ""}, file)
    assert settings.app.cosmos.containers[0].database == "from-file"
    assert "cosmos" not in settings.wanted_ports()


@pytest.mark.parametrize(
    "values",
    [
        {"COSMOS": "AccountEndpoint=http://127.0.0.1:8081/;AccountKey=x;"},
        {"COSMOS": "accountendpoint=https://localhost:8081/;accountkey=x"},
        {"COSMOS": "AccountEndpoint=http://[::1]:8081/;AccountKey=x"},
        {"COSMOS__accountEndpoint": "https://127.0.0.5:8081/"},
        {"COSMOS": ""},
        # An exact name beats the identity form, as in the Functions host.
        {"COSMOS": "AccountEndpoint=http://localhost:1/;", "COSMOS__accountEndpoint": "https://contoso/"},
    ],
)
def test_a_cosmos_on_this_machine_is_run(tmp_path: Path, values: dict[str, str]) -> None:
    assert _read({}, _file(tmp_path, **values)).cosmos_setting == "COSMOS"


@pytest.mark.parametrize(
    "values",
    [
        {"SERVICEBUS": "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=a;UseDevelopmentEmulator=true;"},
        {"SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=a;UseDevelopmentEmulator=true;"},
        {"SERVICEBUS__fullyQualifiedNamespace": "localhost"},
    ],
)
def test_a_service_bus_on_this_machine_is_run(tmp_path: Path, values: dict[str, str]) -> None:
    assert _read({}, _file(tmp_path, **values)).servicebus_setting == "SERVICEBUS"


def test_the_setting_with_the_prefix_of_the_host_decides_too(tmp_path: Path) -> None:
    file = _file(tmp_path, AzureWebJobsCOSMOS="AccountEndpoint=http://localhost:8081/;AccountKey=x")
    assert _read({}, file).cosmos_setting == "AzureWebJobsCOSMOS"
    file = _file(tmp_path, AzureWebJobsCOSMOS=REMOTE_COSMOS)
    assert _read({}, file).cosmos_setting is None


@pytest.mark.parametrize(
    "values",
    [
        {"COSMOS": REMOTE_COSMOS, "SERVICEBUS": REMOTE_SERVICEBUS},
        {
            "COSMOS__accountEndpoint": "https://contoso.documents.azure.com:443/",
            "SERVICEBUS__fullyQualifiedNamespace": "contoso.servicebus.windows.net",
        },
        {
            "COSMOS": "AccountEndpoint=http://emulator:8081/;AccountKey=x;",
            "SERVICEBUS": "Endpoint=sb://10.0.0.5;SharedAccessKeyName=x;SharedAccessKey=y;",
        },
    ],
)
def test_what_is_elsewhere_is_not_run_and_needs_no_port(tmp_path: Path, values: dict[str, str]) -> None:
    settings = _read({}, _file(tmp_path, **values))
    assert settings.wanted_ports() == {"functions": 7071}


def test_a_stack_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"^nothing to start"):
        _read({}, _file(tmp_path, COSMOS=REMOTE_COSMOS, SERVICEBUS=REMOTE_SERVICEBUS), functions=False)


def test_an_app_without_functions_is_refused_with_how_to_start(tmp_path: Path) -> None:
    (tmp_path / "devstack.toml").touch()
    with pytest.raises(CannotStart, match=r"there is no .*function_app\.py: .*--app.*--no-functions$"):
        read_settings({}, tmp_path)
    assert not read_settings({}, tmp_path, functions=False).runs_functions


def test_without_functions_their_port_is_not_wanted(tmp_path: Path) -> None:
    settings = _read({}, _file(tmp_path), functions=False)
    assert set(settings.wanted_ports()) == {"cosmos", "servicebus", "servicebus_admin"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON at line 1, column 1"),
        (b'{"Values": {\n  "COSMOS": x\n}}', "not JSON at line 2"),
        (b'{"IsEncrypted": false}', 'there is no "Values" object'),
        (b"[]", 'there is no "Values" object'),
        (b'{"Values": []}', 'there is no "Values" object'),
        (b'{"IsEncrypted": true, "Values": {}}', "the settings are encrypted"),
        (b'{"Values": {"EVENT_TTL_SECONDS": 5}}', '"EVENT_TTL_SECONDS" is not a text'),
        (b'{"Values": {"A": "\xff"}}', "not UTF-8 at byte 18"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_an_unreadable_settings_file_is_named_with_what_is_wrong(
    tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(content)
    problem = _problem({}, file)
    assert says in problem
    assert str(file) in problem


def test_a_settings_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    assert "No such file" in _problem({}, tmp_path / "missing.json")
    assert "directory" in _problem({}, tmp_path)


def test_an_app_needs_no_settings_file(tmp_path: Path) -> None:
    (tmp_path / "devstack.toml").write_text("")
    (tmp_path / "function_app.py").touch()
    settings = read_settings({"DEVSTACK_DATA": str(tmp_path / "data")}, tmp_path)
    assert settings.file is None
    assert set(settings.wanted_ports()) == {"cosmos", "servicebus", "servicebus_admin", "functions"}


def test_the_connections_may_have_other_names(tmp_path: Path) -> None:
    (tmp_path / "devstack.toml").write_text(
        '[cosmos]\nconnection = "SHOP"\n[servicebus]\nconnection = "BUS"\n'
    )
    (tmp_path / "function_app.py").touch()
    settings = read_settings({"SHOP": REMOTE_COSMOS}, tmp_path)
    assert (settings.cosmos_setting, settings.servicebus_setting) == (None, "BUS")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"Values": {"SHOP_DATABASE": "bom"}}', encoding="utf-8-sig")
    assert _read({}, file).app.cosmos.containers[0].database == "bom"


@pytest.mark.parametrize("text", ["http", "-1", "65536", "80.5", " 8081", "\u0661", "9" * 5000])
def test_a_port_that_is_none(text: str) -> None:
    with pytest.raises(
        CannotStart, match=r"^COSMOS_PORT is .*; set it to a port from 1 to 65535, or to 0"
    ) as raised:
        read_ports({"COSMOS_PORT": text})
    assert len(str(raised.value)) < 200


def test_an_empty_port_is_the_default() -> None:
    assert read_ports({"FUNCTIONS_PORT": ""}).functions == 7071


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"COSMOS": "https://contoso.documents.azure.com"}, "COSMOS is no connection string"),
        (
            {"SERVICEBUS": "SharedAccessKeyName=x"},
            'SERVICEBUS is no connection string: it has no "Endpoint=..." part',
        ),
        ({"COSMOS": "AccountEndpoint=http://[::1/;AccountKey=x"}, "COSMOS names no valid address"),
    ],
)
def test_a_connection_string_that_is_none(tmp_path: Path, values: dict[str, str], says: str) -> None:
    assert says in _problem({}, _file(tmp_path, **values))


def test_a_config_json_that_is_not_there(tmp_path: Path) -> None:
    problem = _problem({"SERVICEBUS_CONFIG": str(tmp_path / "Config.json")}, _file(tmp_path))
    assert problem.startswith(f"SERVICEBUS_CONFIG names {tmp_path / 'Config.json'}, which is no file")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_named_with_the_setting_to_change(taken_port: int) -> None:
    with pytest.raises(
        CannotStart,
        match=f"^cosmos: port {taken_port} is taken; stop what uses it, or set COSMOS_PORT to a free port$",
    ):
        check_ports({"cosmos": taken_port})


def test_one_port_for_two_services(taken_port: int) -> None:
    with pytest.raises(CannotStart, match=r"^COSMOS_PORT and SERVICEBUS_PORT are both"):
        check_ports({"cosmos": taken_port, "servicebus": taken_port})


def test_any_number_of_services_may_take_any_free_port() -> None:
    check_ports({"cosmos": 0, "servicebus": 0, "functions": 0})

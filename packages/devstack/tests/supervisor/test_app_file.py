"""devstack.toml is understood whole, or refused with one line that names the place and says what to mend."""

import subprocess
import sys
from pathlib import Path

import pytest

from devstack.app_file import Queue, Subscription, Topic, read_app
from devstack.service import CannotStart

WHOLE = """
[settings]
DATABASE = "shop"
PARTITIONED = "true"

[cosmos]
connection = "SHOP_COSMOS"

[[cosmos.containers]]
database = "%DATABASE%"
name = "%DATABASE%-orders"
partition_key = "/customerId"

[[cosmos.containers]]
database = "other"
name = "tenants"
partition_key = ["/tenant", "/user"]
ttl = 3600

[servicebus]
connection = "SHOP_BUS"

[[servicebus.topics]]
name = "orders"
enable_partitioning = "%PARTITIONED%"
requires_duplicate_detection = true

[[servicebus.topics.subscriptions]]
name = "billing"
requires_session = true

[[servicebus.topics.subscriptions]]
name = "%ARCHIVE%"
lock_duration = "PT5M"

[[servicebus.topics]]
name = "stock"

[[servicebus.queues]]
name = "invoices"
max_delivery_count = 3

[functions]
path = "/api/orders"
try = "curl {url}?discount=5%20%"
"""


def _file(folder: Path, content: str) -> Path:
    (folder / "devstack.toml").write_text(content)
    return folder


def _refusal(folder: Path, content: str) -> str:
    with pytest.raises(CannotStart) as refused:
        read_app(_file(folder, content), {})
    problem = str(refused.value)
    assert "\n" not in problem
    assert problem.startswith(str(folder / "devstack.toml"))
    return problem


def test_everything_that_a_file_may_declare(tmp_path: Path) -> None:
    app = read_app(_file(tmp_path, WHOLE), {"ARCHIVE": "archive"})
    orders, tenants = app.cosmos.containers
    assert (orders.database, orders.name, orders.partition_key, orders.ttl) == (
        "shop",
        "shop-orders",
        ["/customerId"],
        None,
    )
    assert (tenants.partition_key, tenants.ttl) == (["/tenant", "/user"], 3600)
    assert (app.cosmos.connection, app.servicebus.connection) == ("SHOP_COSMOS", "SHOP_BUS")
    assert app.servicebus.topics == [
        Topic(
            name="orders",
            requires_duplicate_detection=True,
            enable_partitioning=True,
            subscriptions=[
                Subscription(name="billing", requires_session=True),
                Subscription(name="archive", setting="ARCHIVE", lock_duration="PT5M"),
            ],
        ),
        Topic(name="stock"),
    ]
    assert app.servicebus.queues == [Queue(name="invoices", max_delivery_count=3)]
    assert app.functions.path == "/api/orders"
    assert app.functions.line_to_try == "curl {url}?discount=5%20%"


def test_an_empty_file_is_an_app_that_needs_nothing(tmp_path: Path) -> None:
    app = read_app(_file(tmp_path, ""), {})
    assert app.cosmos.containers == []
    assert (app.cosmos.connection, app.servicebus.connection) == ("COSMOS", "SERVICEBUS")


def test_a_setting_beats_its_default_and_an_empty_one_counts_as_not_set(tmp_path: Path) -> None:
    folder = _file(tmp_path, WHOLE)
    given = {"ARCHIVE": "a", "DATABASE": "mine", "PARTITIONED": ""}
    app = read_app(folder, given)
    assert app.cosmos.containers[0].name == "mine-orders"
    assert app.servicebus.topics[0].enable_partitioning is True


DERIVING = """
def derive(source, settings):
    containers = [{"database": "d", "name": settings["NAME"], "partition_key": ["/id"], "indexes": ["/a/?"]}]
    topics = [{"name": "t", "requires_duplicate_detection": True, "subscriptions": [{"name": source}]}]
    return {"settings": {"NAME": "n", "OTHER": "o"}, "cosmos": {"containers": containers},
            "servicebus": {"topics": topics}, "functions": {"of": "no one here"}}
"""


def test_what_the_apps_declaration_says_is_made_and_the_file_adds_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "deriving", raising=False)
    (tmp_path / "deriving.py").write_text(DERIVING)
    written = """
        [settings]
        OTHER = "mine"
        [derived]
        by = "deriving"
        from = "billing"
        [[servicebus.topics]]
        name = "t"
        [[servicebus.topics.subscriptions]]
        name = "watch"
        [[servicebus.topics]]
        name = "%OTHER%"
        [functions]
        path = "/api"
    """
    app = read_app(_file(tmp_path, written), {"NAME": "given"})
    [container] = app.cosmos.containers
    assert (container.name, container.partition_key, container.indexes) == ("given", ["/id"], ["/a/?"])
    derived, other = app.servicebus.topics
    assert (derived.name, derived.requires_duplicate_detection) == ("t", True)
    assert [each.name for each in derived.subscriptions] == ["billing", "watch"]
    assert (other.name, app.functions.path, app.settings) == ("mine", "/api", {"NAME": "n", "OTHER": "mine"})


def test_a_module_of_the_app_hides_none_of_pythons(tmp_path: Path) -> None:
    (tmp_path / "http.py").write_text("raise SystemExit('the one of the app')")
    (tmp_path / "deriving.py").write_text(f"import http.client\n{DERIVING}")
    _file(tmp_path, '[derived]\nby = "deriving"\nfrom = "billing"')
    program = f"""
from pathlib import Path
from devstack.app_file import read_app
read_app(Path({str(tmp_path)!r}), dict(NAME="n"))
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('by = "no_such_module"\nfrom = "x"', "derived: No module named 'no_such_module'"),
        ('by = "json"\nfrom = "x"', "derived: module 'json' has no attribute 'derive'"),
        ('by = "json"', "derived: 1 validation error for Derived from Field required"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_one_line(tmp_path: Path, table: str, says: str) -> None:
    assert says in _refusal(tmp_path, f"[derived]\n{table}")


def test_a_container_that_must_be_renamed_says_where(tmp_path: Path) -> None:
    app = read_app(_file(tmp_path, WHOLE), {"ARCHIVE": "a"})
    assert app.cosmos.containers[0].rename == "name another one in DATABASE"
    assert app.cosmos.containers[1].rename == "name another one in devstack.toml"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[cosmos", "not TOML: "),
        ("[cosmoss]", "cosmoss: there is no such key; remove it"),
        (
            '[[servicebus.topics]]\nname = "t"\nsessions = true',
            "servicebus.topics.0.sessions: there is no such key",
        ),
        (
            '[[servicebus.queues]]\nname = "q"\nsetting = "X"',
            "servicebus.queues.0.setting: there is no such key",
        ),
        ("[[servicebus.topics]]", "servicebus.topics.0.name: Field required"),
        (
            '[[cosmos.containers]]\nname = "%MISSING%"\n',
            "cosmos.containers.0.name uses %MISSING%; set MISSING, or give it a default under [settings]",
        ),
        (
            '[[cosmos.containers]]\ndatabase = "d"\nname = "c"\npartition_key = []',
            "cosmos.containers.0.partition_key: ",
        ),
        (
            '[[cosmos.containers]]\ndatabase = "d"\nname = "c"\npartition_key = "/p"\nttl = "-1"',
            "cosmos.containers.0.ttl: Input should be a valid integer",
        ),
        (
            '[[servicebus.queues]]\nname = "q"\nrequires_session = "perhaps"',
            "servicebus.queues.0.requires_session: ",
        ),
        (
            '[[servicebus.queues]]\nname = "q"\nlock_duration = "5m"',
            "servicebus.queues.0.lock_duration: '5m' is no ISO 8601 duration; write PT30S, PT5M or P1D",
        ),
        (
            '[[servicebus.topics]]\nname = "t"\nduplicate_detection_history_time_window = "PT"',
            "'PT' is no ISO 8601 duration",
        ),
        ("settings = 5", '"settings" is not a table'),
        ("[settings]\nTTL = 5", "settings.TTL: Input should be a valid string"),
    ],
)
def test_what_cannot_be_right_is_one_line(tmp_path: Path, content: str, says: str) -> None:
    assert says in _refusal(tmp_path, content)


def test_a_file_that_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"is not there: .* name the app's folder with --app$"):
        read_app(tmp_path, {})
    (tmp_path / "devstack.toml").mkdir()
    with pytest.raises(CannotStart, match="cannot be read"):
        read_app(tmp_path, {})
    (tmp_path / "devstack.toml").rmdir()
    (tmp_path / "devstack.toml").write_bytes(b"\xff")
    with pytest.raises(CannotStart, match="not UTF-8 at byte 0"):
        read_app(tmp_path, {})

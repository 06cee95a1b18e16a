"""What a user did wrong is one line that says how to mend it, and exit code 2."""

import json
from pathlib import Path

import aiohttp
import pytest

from devstack.testing import Service
from devstack.testing.ended import run_module
from functions.support import host

IMPORTS = "import azure.functions as func\napp = func.FunctionApp()\n"
HTTP = '@app.route(route="x")\nasync def {name}(req: func.HttpRequest) -> str:\n    return ""\n'


def start(app: Path, settings: Path, port: int = 0) -> str:
    """Starts the host as a user does; the line on standard error."""
    ended = run_module("devstack", "functions", f"--port={port}", f"--app={app}", f"--settings={settings}")
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert ended.err.count("\n") == 1, ended.err
    return ended.err


def refusal(folder: Path, source: str) -> str:
    """The line with which the host refuses this ``function_app.py``."""
    (folder / "function_app.py").write_text(source)
    (folder / "settings.json").write_text('{"Values": {}}')
    return start(folder, folder / "settings.json")


def test_an_app_that_does_not_import(tmp_path: Path) -> None:
    line = refusal(tmp_path, "import azure.functions\nraise ValueError('the app\\nis broken')\n")

    assert "ValueError: the app is broken" in line
    assert "function_app.py, line 2" in line


def test_an_app_with_a_syntax_error(tmp_path: Path) -> None:
    assert "line 1" in refusal(tmp_path, "def f(:\n")


def test_two_functions_of_one_name(tmp_path: Path) -> None:
    source = IMPORTS + HTTP.format(name="twice") + '@app.function_name("twice")\n' + HTTP.format(name="other")

    assert "Function twice does not have a unique function name" in refusal(tmp_path, source)


MANY = """
@app.service_bus_queue_trigger("m", "q", "C", cardinality=func.Cardinality.MANY)
async def f(m: {}): ...
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ('@app.route(route="x")\nasync def f(other): ...\n', 'f has no parameter "req"'),
        ('@app.route(route="x")\nasync def f(req, other): ...\n', "nothing fills the parameter other of f"),
        (
            '@app.route(route="x")\nasync def f(req, context: func.Context | None = None): ...\n',
            'the parameter "context" of f has to be annotated as azure.functions.Context',
        ),
        (
            '@app.route(route="x")\nasync def f(req: func.TimerRequest): ...\n',
            'the annotation of the parameter "req" of f does not fit a httpTrigger',
        ),
        (
            '@app.route(route="x")\nasync def f(req: "missing.Request"): ...\n',
            "the annotations of f cannot be read: name 'missing' is not defined",
        ),
        (
            '@app.route(route="x")\nasync def f(req: func.HttpRequest | None): ...\n',
            'the annotation of the parameter "req" of f does not fit a httpTrigger',
        ),
        (
            MANY.format("list[func.ServiceBusMessage]"),
            'the annotation of the parameter "m" of f does not fit a serviceBusTrigger: use',
        ),
        ('@app.route(route="a{b}c")\nasync def f(req): ...\n', '"a{b}c" in the route'),
        ('@app.route(route="/x")\nasync def f(req): ...\n', 'no slashes next to each other in "api//x"'),
        (
            '@app.blob_trigger("b", "path", "C")\nasync def f(b): ...\n',
            "binding blobTrigger, which is not here",
        ),
        (
            '@app.timer_trigger("t", "0 0 * * * *")\n@app.retry("fixed_delay", "1")\nasync def f(t): ...\n',
            "the retry policy of f cannot be used: delay_interval",
        ),
    ],
)
def test_a_function_that_cannot_be_run(tmp_path: Path, function: str, said: str) -> None:
    assert said in refusal(tmp_path, IMPORTS + function)


NO_USE = [
    ('@app.timer_trigger("t", "0 0 L * * *")\nasync def {name}(t): ...\n', "the timer of {name}"),
    (
        '@app.cosmos_db_trigger("d", "NOT_SET", "db", "c")\nasync def {name}(d): ...\n',
        "the Cosmos trigger of {name} uses the connection NOT_SET",
    ),
    (
        '@app.service_bus_queue_trigger("m", "NOT_SET", "%QUEUE%")\nasync def {name}(m): ...\n',
        "the Service Bus trigger of {name} uses ",
    ),
    (
        '@app.service_bus_queue_trigger("m", "BAD", "queue")\nasync def {name}(m): ...\n',
        "the connection BAD cannot be used",
    ),
    (
        '@app.queue_trigger("m", "queue", "NOT_SET")\nasync def {name}(m): ...\n',
        "the queue trigger of {name} uses the connection NOT_SET",
    ),
    (
        '@app.queue_trigger("m", "queue", "BAD")\nasync def {name}(m): ...\n',
        "the connection BAD cannot be used",
    ),
    (
        '@app.cosmos_db_trigger("d", "BAD", "db", "c")\nasync def {name}(d): ...\n',
        "the connection BAD cannot be used",
    ),
    (
        '@app.cosmos_db_trigger("d", "COSMOS", "db", "Leases")\nasync def {name}(d): ...\n',
        "the Cosmos trigger of {name} watches the container Leases, in which it keeps its leases",
    ),
]


async def test_functions_with_wrong_settings_are_named_and_the_others_run(tmp_path: Path) -> None:
    functions = [function.replace("{name}", f"f{n}") for n, (function, _) in enumerate(NO_USE)]
    (tmp_path / "function_app.py").write_text(IMPORTS + HTTP.format(name="other") + "".join(functions))
    settings = {"BAD": "AccountKey=secret", "COSMOS": "AccountEndpoint=http://127.0.0.1:1;AccountKey=a2V5;"}
    with host(tmp_path / "host", tmp_path, settings) as service:
        async with aiohttp.ClientSession(service.address) as http, http.get("api/x") as answer:
            assert answer.status == 200

    log = service.log.read_text()
    assert "secret" not in log
    for number, (_, said) in enumerate(NO_USE):
        refusal = f"f{number} does not run, the other functions do: "
        [line] = [each for each in log.splitlines() if refusal in each]
        assert said.replace("{name}", f"f{number}") in line


async def test_a_disabled_function_has_no_listener_and_is_404(tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text(
        IMPORTS
        + HTTP.format(name="a")
        + HTTP.format(name="b")
        + '@app.cosmos_db_trigger("d", "NOT_SET", "db", "c")\nasync def f(d): ...\n'
    )
    settings = {"AzureWebJobs.a.Disabled": "true", "AzureWebJobs_f_Disabled": "1"}
    with host(tmp_path / "host", tmp_path, settings) as service:
        async with aiohttp.ClientSession(service.address) as http, http.get("api/x") as answer:
            assert (answer.status, await answer.read()) == (404, b""), "it hides b, which has the same route"

    assert "a (disabled), b (httpTrigger), f (disabled)" in service.log.read_text()
    assert "does not run" not in service.log.read_text()


def test_a_folder_without_an_app(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"Values": {}}')

    assert "--app" in start(tmp_path, tmp_path / "settings.json")


def test_two_apps_in_one_file(tmp_path: Path) -> None:
    assert "must define one FunctionApp, it has 2" in refusal(
        tmp_path, IMPORTS + "second = func.FunctionApp()\n"
    )


def test_settings_that_are_no_json(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{")

    assert "not JSON at line 1" in start(tmp_path, tmp_path / "settings.json")


def test_a_taken_port(tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text(IMPORTS)
    (tmp_path / "settings.json").write_text(json.dumps({"Values": {}}))
    first = Service(
        "functions", tmp_path / "first", "--app", str(tmp_path), "--settings", str(tmp_path / "settings.json")
    )
    first.start()
    try:
        assert f"port {first.port} is taken" in start(tmp_path, tmp_path / "settings.json", first.port)
    finally:
        first.terminate()

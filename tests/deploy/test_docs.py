"""Each command in the documents works, or at least names files and options that exist."""

import re

from tests.deploy import bicep
from tests.deploy.bicep import MAIN
from tests.support.functions import functions
from tests.support.paths import ROOT

OPERATIONS = ROOT / "docs" / "operate"
DEPLOY_MD, COSTS_MD = ((OPERATIONS / name).read_text() for name in ("deploy.md", "costs.md"))
TIMES = "\N{MULTIPLICATION SIGN}"


def test_every_parameter_is_described_and_the_page_gives_its_default() -> None:
    """In the template; the page has what there is more to say about, and the alarms' page the thresholds."""
    declared = re.findall(r"((?:^@.*\n)*)^param (\w+)", MAIN.text, re.MULTILINE)
    assert [name for decorators, name in declared if "@description('" not in decorators] == []
    table = DEPLOY_MD.partition("## Parameters")[2].partition("\n\n## Identities")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    documented: dict[str, str] = {}
    for names, defaults, _ in rows:
        values = [value.strip(" `") for value in defaults.split(",")]
        documented.update(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    assert len(documented) > 5
    assert {name: MAIN.defaults()[name] for name in documented} == documented


def test_the_outputs_that_the_documents_and_workflows_use_are_there() -> None:
    texts = [
        file.read_text() for file in (*OPERATIONS.glob("*.md"), ROOT / ".github" / "workflows" / "deploy.yml")
    ]
    used = {
        name
        for text in texts
        for name in re.findall(r"\$\{?((?:FUNCTION_APP|WORKERS_APP|COSMOS|SERVICEBUS)_\w+)", text)
    }
    assert {"FUNCTION_APP_NAME", "FUNCTION_APP_URL", "WORKERS_APP_NAME"} <= used
    assert used <= set(MAIN.names("output"))
    assert all(name[0].isupper() for name in MAIN.names("output")), (
        "the documents restore the case of the first letter"
    )


def test_the_arithmetic_of_what_a_change_costs_is_right() -> None:
    always = 1.0 + 9.9 + 2.0 + 5.95 + 2.0 + 4.95
    alone, together = round(always + (3 + 4.95), 1), round(always + (3 + 4.95) / 50, 1)
    for figure in (
        f"| **together**, n = 1 | {alone:.1f} RU | 4 |",
        f"| **together**, n = 50 | {together:.1f} RU | 4 |",
        f"(1 M {TIMES} {alone:.1f} + 11 M, and 0.7 M [at rest](#at-rest)) RU",
        f"RU = {alone + 11.7:.1f} M RU {TIMES} 0.25 / M |",
    ):
        assert figure in COSTS_MD, figure


def test_the_lines_of_the_cost_table_add_up_to_its_total() -> None:
    table = COSTS_MD.partition("## A million changes a month")[2].partition("\n\nStored data")[0]
    rows = [[cell.strip(" *") for cell in line.split("|")[1:5]] for line in table.splitlines() if "|" in line]
    costs = {name: (defaults, production) for name, _, defaults, production in rows[2:]}
    hours, records = 730, 4 + 2 * 3 + 3 + 4
    ready = 2 * 2.628 * 4
    groups = 2 + sum(not function.is_http_function() for function in functions().values())
    logs = {file.stem for file in (ROOT / "deploy" / "alerts").glob("*.kql")} - {
        "deadlines",
    }
    metrics = bicep.read("modules/alerts.bicep").declaration("var", "metricAlerts").text.count("metric: ")
    monitor = f"{(records + 1 - 5) * 2.30:.2f}"
    alerts = f"{len(logs) * 1.5 + metrics * 0.1:.2f}"
    assert costs | {"together": ("", "")} == {
        "Cosmos DB serverless": (f"{(33.8 + 11 + 0.7) * 0.25:.2f}", ""),
        "or autoscale, 4000 RU/s": ("", f"{hours * 0.012 * 4:.2f} to {hours * 0.012 * 40:.2f}"),
        "Service Bus Standard": ("10.00", ""),
        "or Premium": ("", f"{hours * 0.928:.2f}"),
        "Functions on demand": (f"{0.5 * 26 + 2.75 * 0.4:.2f}",) * 2,
        "always ready": ("", f"{2 * groups * ready:.2f}"),
        "Application Insights": (monitor, monitor),
        "alerts": (alerts, alerts),
        "private endpoints": ("", f"{4 * hours * 0.01 + 3 * 0.5:.2f}"),
        "together": ("", ""),
    }
    defaults = sum(float(cost) for name, (cost, _) in costs.items() if cost and name != "together")
    least, most = (
        sum(
            float(cost.split(" to ")[end]) for name, (_, cost) in costs.items() if cost and name != "together"
        )
        for end in (0, -1)
    )
    assert costs["together"] == (f"{defaults:.2f}", f"{least:.2f} to {most:.2f}")
    assert f"an instance: 2 GB {TIMES} 2.628 M s {TIMES} 0.000004 = {ready:.2f}" in table
    assert f"each of {groups - 2} other functions: {2 * groups}" in table
    assert f"{TIMES} {records} records" in table


def test_the_instances_are_those_of_the_template_and_of_the_functions() -> None:
    """HTTP is one group of each app on Flex Consumption, and each other function is one of its own."""
    timers = [name for name, each in functions().items() if "timerTrigger" in str(each)]
    most = int(MAIN.defaults()["maximumInstanceCount"])
    assert f"at most {3 * most + len(timers)} instances" in " ".join(DEPLOY_MD.split())

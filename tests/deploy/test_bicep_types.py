"""The resources in the Bicep files fit Azure's published types."""

import shutil
from pathlib import Path

import pytest

from tests.deploy.bicep_check import faults
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"


def test_every_property_and_value_of_a_resource_is_one_of_azures_types() -> None:
    assert faults(DEPLOY) == []


@pytest.mark.parametrize(
    ("file", "before", "after", "fault"),
    [
        (
            "functions.bicep",
            "    httpsOnly: true\n",
            "    httpOnly: true\n",
            "site.properties: no property httpOnly",
        ),
        (
            "cosmos.bicep",
            "{ path: '/*' }",
            "{ paths: '/*' }",
            "container.properties.resource.indexingPolicy.excludedPaths[]: no property paths",
        ),
        ("identity.bicep", "  tags: tags\n}", "  tags: tags\n", "is no Bicep"),
    ],
)
def test_a_fault_is_found_at_its_place(
    file: str, before: str, after: str, fault: str, tmp_path: Path
) -> None:
    copy = shutil.copytree(DEPLOY, tmp_path / "deploy") / "modules" / file
    text = copy.read_text()
    assert text.count(before) == 1, "the fault is planted at one place"
    copy.write_text(text.replace(before, after))
    assert faults(tmp_path) == [f"{file}: {fault}"]

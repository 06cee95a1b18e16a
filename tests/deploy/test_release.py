"""A release is one tag of the version that all distributions have, with the section of CHANGELOG.md as its notes."""

from pathlib import Path

import pytest

import cosmos_outbox
from tools import release
from tools.release import NotReady, check_tag, notes, version_of_all

CHANGES = (
    "# Changelog\n\n## [1.1.0] - 2027-01-02\n\n### Added\n\n- New.\n\n## [1.0.0] - 2027-01-01\n\nThe first.\n"
)


def test_the_notes_are_the_section_of_the_version() -> None:
    assert notes("1.1.0", CHANGES) == "### Added\n\n- New.\n"
    assert notes("1.0.0", CHANGES) == "The first.\n"
    assert notes(version_of_all(), release.CHANGES.read_text("utf-8")), "of the version that is there now"


@pytest.mark.parametrize("version", ["1.1", "2.0.0"])
def test_a_version_without_notes_is_no_release(version: str) -> None:
    with pytest.raises(NotReady, match=f"no section for {version}: write it"):
        notes(version, CHANGES)


def test_a_tag_is_of_the_version_of_all_distributions() -> None:
    assert version_of_all() == cosmos_outbox.__version__
    check_tag(f"v{cosmos_outbox.__version__}", cosmos_outbox.__version__)
    with pytest.raises(NotReady, match=r"the tag is v9\.9\.9, and the packages have 1\.0\.0: tag v1\.0\.0"):
        check_tag("v9.9.9", "1.0.0")


def test_distributions_of_different_versions_are_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in ((".", "1.0.0"), ("packages/devstack", "1.0.1")):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "PROJECTS", [tmp_path, tmp_path / "packages" / "devstack"])
    with pytest.raises(NotReady, match="different versions"):
        version_of_all()

"""What the tests of the stack share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.service import locked_folder


@pytest.fixture
def cosmos_server_folder(tmp_path: Path) -> Iterator[Path]:
    """The data folder of a service that runs: locked as it locks it."""
    with locked_folder("cosmos", tmp_path / "data" / "cosmos") as folder:
        yield folder

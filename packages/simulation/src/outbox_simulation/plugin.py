"""pytest's options for ``simulate``: more seeds, one seed again, the stored forms of a release.

Enabled by ``-p outbox_simulation.plugin``, among pytest's ``addopts``. It is not automatic: if a package brings a
plugin by itself, pytest rewrites each of its assertions, and imports it more slowly.
"""

from dataclasses import dataclass

import pytest

NAME = "outbox_simulation.plugin"


@dataclass(frozen=True)
class SimulateOptions:
    """The command line's options for all simulations."""

    loaded: bool = False
    """Whether pytest knows the options."""
    seeds: int | None = None
    """The number of seeds that replaces the test's own."""
    seed: int | None = None
    """The only seed to run."""
    write_forms: bool = False


options = SimulateOptions()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options, each named for ``simulate``."""
    group = parser.getgroup("cosmos-outbox", "cosmos-outbox: tests with simulate()")
    group.addoption("--simulate-seeds", type=int, metavar="N", help="so many seeds, whatever the test says")
    group.addoption("--simulate-seed", type=int, metavar="SEED", help="this seed alone: the same run again")
    group.addoption(
        "--simulate-write-forms",
        action="store_true",
        help="add the forms in which this release stores documents to the folder of the test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the options: ``simulate`` is a plain function, and no fixture hands them to it."""
    global options  # noqa: PLW0603 - one command line a process
    options = SimulateOptions(
        loaded=True,
        seeds=config.getoption("simulate_seeds"),
        seed=config.getoption("simulate_seed"),
        write_forms=config.getoption("simulate_write_forms"),
    )

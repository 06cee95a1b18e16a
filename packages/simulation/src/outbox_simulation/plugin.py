"""pytest's options for ``simulate``: more seeds, one seed again, the stored forms of a release.

Asked for by ``-p outbox_simulation.plugin``, among pytest's ``addopts``. It does not come by itself: of a
package that brings a plugin unasked, pytest rewrites each assertion, and imports it the slower.
"""

from dataclasses import dataclass

import pytest

NAME = "outbox_simulation.plugin"


@dataclass(frozen=True)
class SimulateOptions:
    """What the command line says of all simulations."""

    loaded: bool = False
    """Whether pytest knows the options."""
    seeds: int | None = None
    """So many, in the place of what the test says."""
    seed: int | None = None
    """This one alone."""
    write_forms: bool = False


options = SimulateOptions()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Named for ``simulate``, each."""
    group = parser.getgroup("cosmos-outbox", "cosmos-outbox: tests with simulate()")
    group.addoption("--simulate-seeds", type=int, metavar="N", help="so many seeds, whatever the test says")
    group.addoption("--simulate-seed", type=int, metavar="SEED", help="this seed alone: the same run again")
    group.addoption(
        "--simulate-write-forms",
        action="store_true",
        help="add the forms in which this release stores documents to the folder of the test",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep what was asked for: ``simulate`` is a plain function, and no fixture hands it the options."""
    global options  # noqa: PLW0603 - one command line a process
    options = SimulateOptions(
        loaded=True,
        seeds=config.getoption("simulate_seeds"),
        seed=config.getoption("simulate_seed"),
        write_forms=config.getoption("simulate_write_forms"),
    )

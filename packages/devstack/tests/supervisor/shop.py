"""The app that the tests of the whole stack run."""

from pathlib import Path

SHOP = Path(__file__).with_name("app")

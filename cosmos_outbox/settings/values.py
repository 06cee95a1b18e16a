"""A value of a setting is what it has to be, or an error names the setting and what it may be."""

from collections.abc import Mapping

from cosmos_outbox.settings.errors import Misconfigured


def flag(environment: Mapping[str, str], name: str) -> bool:
    """True or false; false where nothing is said. Raises Misconfigured."""
    text = environment.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise Misconfigured(f"{name} is {text!r}: set it to true or false")
    return text == "true"


def number(environment: Mapping[str, str], name: str, *, default: int, lowest: int, highest: int) -> int:
    """A whole number. Raises Misconfigured."""
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
        raise Misconfigured(f"{name} is {text!r}: set it to a number from {lowest} to {highest}")
    return int(text)

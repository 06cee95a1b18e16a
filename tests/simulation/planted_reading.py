"""Bugs of what listens to the canary. They are hunted where it sings."""

from tests.torture.planted_bugs import Planted

_LISTENER = "cosmos_outbox/inbox/canary.py"
_NO_PROFILE = "the simulation alone"
_LOST = ("lost, says the canary",)

CANARY: tuple[Planted, ...] = (
    Planted(
        "what-is-heard-late-stays-lost",  # a song that went to the dead letters, and came back
        _LISTENER,
        "            each for each in before.missing if now - each.since < REMEMBERED and each.sequence != sequence\n",
        "            each for each in before.missing if now - each.since < REMEMBERED\n",
        _NO_PROFILE,
        _LOST,
    ),
)

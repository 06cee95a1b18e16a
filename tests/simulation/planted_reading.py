"""Bugs of what is only read: what listens to the canary, hunted where it sings, and pages of lists."""

from tests.torture.planted_bugs import Planted

_LISTENER = "cosmos_outbox/inbox/canary.py"
_NO_PROFILE = "the simulation alone"
_LOST = ("lost, says the canary",)

LISTS: tuple[Planted, ...] = (
    Planted(
        "next-page-is-after-the-key-alone",  # a walk by what several entries have in common
        "cosmos_outbox/cosmos/store/paging.py",
        '    return f"{path} {sign}= @key AND ({path} {sign} @key OR c.id {sign} @after)"\n',
        '    return f"{path} {sign} @key AND ({path} {sign} @key OR c.id {sign} @after)"\n',
        _NO_PROFILE,
        ("a list", "read model"),
    ),
)

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

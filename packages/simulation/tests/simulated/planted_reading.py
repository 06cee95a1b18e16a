"""Bugs of what leafs through lists."""

from tests.torture.planted_bugs import Planted

_NO_PROFILE = "the simulation alone"
_PAGING, _LIST = "cosmos_outbox/cosmos/store/container.py", ("a list",)

LISTS: tuple[Planted, ...] = (
    Planted(
        "page-begins-behind-all-with-the-last-text",  # two entries with the same text, and a page ends between them
        _PAGING,
        'return f"{path} {sign}= @key AND (',
        'return f"{path} {sign} @key AND (',
        _NO_PROFILE,
        _LIST,
    ),
    Planted(
        "page-begins-with-the-last-of-the-page-before",
        _PAGING,
        "OR c.id {sign} @after)",
        "OR c.id {sign}= @after)",
        _NO_PROFILE,
        _LIST,
    ),
    Planted(
        "list-of-what-is-set-aside-ends-with-its-second-page",
        "cosmos_outbox/cosmos/inbox/records.py",
        "continuation.seal(self.scope, token) if token else None",
        "continuation.seal(self.scope, token) if token and not continuation_token else None",
        _NO_PROFILE,
        _LIST,
    ),
    Planted(
        "key-of-tokens-is-each-processs-own",  # a page that another process is asked for
        "cosmos_outbox/cosmos/inbox/listing.py",
        "item = await container.read(ITEM, PARTITION) or await _make(container)\n",
        'item = {"key": new_key()}\n',
        _NO_PROFILE,
        _LIST,
    ),
)

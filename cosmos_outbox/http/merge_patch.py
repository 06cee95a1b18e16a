"""JSON Merge Patch, RFC 7396: null removes, objects merge, anything else replaces."""

from typing import Any


def merge_patch(target: Any, patch: Any) -> Any:
    """``target`` with ``patch`` applied; neither argument is changed.

    A null that is there stays one, so that what is sent back as it was read changes nothing.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is not None:
            merged[name] = merge_patch(merged.get(name), value)
        elif merged.get(name) is not None:
            del merged[name]
    return merged

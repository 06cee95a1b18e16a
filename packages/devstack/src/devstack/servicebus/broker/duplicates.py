"""A key is accepted once in any window; the window starts with the first acceptance, and a repeat does not renew it.

Source: the documentation of duplicate detection in Azure Service Bus; the window is 20 s to 7 d there.
"""

from collections import deque


class DuplicateWindow:
    """The keys that were accepted within the window."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._accepted: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._accepted)

    def accept(self, key: str, now_ms: int) -> bool:
        """Whether the key is new; if it is, the window starts for it."""
        self.expire(now_ms)
        if key in self._accepted:
            return False
        self.restore(key, now_ms)
        return True

    def restore(self, key: str, at_ms: int) -> None:
        """Take over a key that was accepted before; keys are restored in order of their times."""
        self._accepted[key] = at_ms
        self._order.append((at_ms, key))

    def expire(self, now_ms: int) -> int:
        """Drop the keys whose window is over. Returns the time before which all are gone."""
        horizon = now_ms - self.window_ms
        while self._order and self._order[0][0] <= horizon:
            _, key = self._order.popleft()
            self._accepted.pop(key, None)
        return horizon

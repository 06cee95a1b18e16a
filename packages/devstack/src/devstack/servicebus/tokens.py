"""``$cbs`` of one connection: a token that is put there is the connection's, and only that connection's."""

from devstack.servicebus.amqp import cbs
from devstack.servicebus.amqp.access import Access
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Faults
from devstack.servicebus.codec.message import ParsedMessage

_NODE_SUFFIXES = (cbs.MANAGEMENT_SUFFIX, "/$deadletterqueue")


class TokenNode:
    def __init__(self, engine: Engine, key: cbs.SasKey, faults: Faults, access: Access) -> None:
        self._engine = engine
        self._key = key
        self._faults = faults
        self._access = access

    def answer(self, request: ParsedMessage) -> bytes:
        """Check a token and keep what it grants. A path that names no entity is refused here already, as in Azure."""
        grant, answer = cbs.put_token(
            request, self._key, self._engine.now(), refuse=self._faults.happens("unauthorized") is not None
        )
        if grant is None:
            return answer
        path = _entity_of(cbs.audience(request))
        if path and self._engine.namespace.find(path) is None:
            return cbs.answer_not_found(request, path)
        self._access.add(grant)
        return answer


def _entity_of(path: str) -> str:
    lowered = path.lower()
    for suffix in _NODE_SUFFIXES:
        if lowered.endswith(suffix):
            return _entity_of(path[: -len(suffix)])
    return path

"""The messages between host and runtime, as plain records.

The runtime takes the module of its messages from the host, and so needs no gRPC. Names and numbers are those of
https://github.com/Azure/azure-functions-language-worker-protobuf (FunctionRpc.proto).
"""

from types import SimpleNamespace
from typing import Any, ClassVar

KINDS = ("string", "json", "bytes", "stream", "http", "int", "double")


class TypedData:
    """One value, of exactly one kind; fields of the other kinds are empty, as in protobuf."""

    def __init__(self, **value: Any) -> None:
        assert len(value) <= 1
        assert set(value) <= set(KINDS)
        self._kind = next(iter(value), None)
        for kind in KINDS:
            setattr(self, kind, value.get(kind))

    def WhichOneof(self, _: str) -> str | None:  # noqa: N802 - protobuf's name
        """The kind of the value."""
        return self._kind


class ParameterBinding(SimpleNamespace):
    """A parameter's ``name`` and ``data``."""

    def WhichOneof(self, _: str) -> str:  # noqa: N802 - protobuf's name
        """Never in shared memory."""
        return "data"


class StatusResult(SimpleNamespace):
    """How a call ended: ``status`` and ``exception``."""

    Failure: ClassVar = 0
    Success: ClassVar = 1


class BindingInfo(SimpleNamespace):
    """A binding's ``type``, ``direction`` and ``data_type``."""

    undefined: ClassVar = 0
    inout: ClassVar = 2
    out: ClassVar = 1


class RpcHttp(SimpleNamespace):
    """A request (``method``, ``url``, ``headers``, ``params``, ``query``, ``body``) or an answer."""


class RpcFunctionMetadata(SimpleNamespace):
    """A function as the runtime reports it."""


class RpcRetryOptions(SimpleNamespace):
    """A retry policy as the runtime reports it."""


class RpcException(SimpleNamespace):
    """``message`` and ``stack_trace`` of what a function raised."""


class InvocationResponse(SimpleNamespace):
    """``result`` and, for a function that returns something, ``return_value``."""


class WorkerInitResponse(SimpleNamespace):
    """``result`` and what the runtime can do."""


class WorkerMetadata(SimpleNamespace):
    """Which runtime it is."""


class FunctionMetadataResponse(SimpleNamespace):
    """``function_metadata_results``: the functions that were found."""


class FunctionLoadResponse(SimpleNamespace):
    """``result``."""

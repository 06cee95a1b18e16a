"""The host's side of the runtime: it calls in the order, and with the payloads, of the Functions host (4.x)."""

import importlib
import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.runtime import protos
from tests.runtime.protos import RpcHttp, StatusResult, TypedData

runtime: Any = importlib.import_module("azure_functions_runtime")
"""It has no types, and is not there before Python 3.13, where this module is still checked."""

TRACE_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Host:
    """Has one app indexed, and invokes its functions by name."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.functions = functions

    @classmethod
    async def started(cls, app: Path) -> Self:
        """Index the app in this folder; a failure to do so is an AssertionError with the runtime's message."""
        init = SimpleNamespace(capabilities={}, function_app_directory=str(app))
        with _imported_anew("function_app"):
            started = await runtime.worker_init_request(_request(worker_init_request=init))
        assert started.result.status == StatusResult.Success, started.result.exception.message
        listed = await runtime.functions_metadata_request(_request())
        assert listed.result.status == StatusResult.Success
        functions = {function.name: function for function in listed.function_metadata_results}
        for function in functions.values():
            load = SimpleNamespace(function_id=function.function_id, metadata=function)
            loaded = await runtime.function_load_request(_request(function_load_request=load))
            assert loaded.result.status == StatusResult.Success
        return cls(functions)

    def trigger(self, name: str) -> dict[str, Any]:
        """A function's trigger as the runtime reports it to the host."""
        (trigger,) = [
            binding
            for binding in map(json.loads, self.functions[name].raw_bindings)
            if str(binding["type"]).lower().endswith("trigger")
        ]
        assert isinstance(trigger, dict)
        return trigger

    async def invoke(self, name: str, data: TypedData, metadata: Mapping[str, TypedData]) -> Any:
        """Invoke a function with its trigger's value; the runtime's InvocationResponse."""
        invocation = SimpleNamespace(
            invocation_id=str(uuid.uuid4()),
            function_id=self.functions[name].function_id,
            input_data=[protos.ParameterBinding(name=self.trigger(name)["name"], data=data)],
            trigger_metadata={"sys": _system(name)} | dict(metadata),
            trace_context=SimpleNamespace(trace_parent=TRACE_PARENT, trace_state="", attributes={}),
            retry_context=SimpleNamespace(retry_count=0, max_retry_count=0, exception=None),
        )
        return await runtime.invocation_request(_request(invocation_request=invocation))

    async def call(
        self,
        name: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RpcHttp:
        """Send a request that the host has routed to ``name``; the answer with ``text``, its headers in lower case."""
        url = f"http://127.0.0.1:7071/api/{path}"
        sent = {} if body is None else {"content-type": "application/json"}
        request = RpcHttp(
            method=method,
            url=url,
            headers={"host": "127.0.0.1:7071"} | sent | dict(headers or {}),
            params=dict(params or {}),
            query=dict(parse_qsl(urlsplit(url).query)),
            body=TypedData() if body is None else TypedData(bytes=_bytes(body)),
        )
        answer = await self.invoke(name, TypedData(http=request), {})
        assert answer.result.status == StatusResult.Success, answer.result.exception.message
        http: RpcHttp = answer.return_value.http
        http.text = _text(http.body)
        http.headers = {name.lower(): value for name, value in http.headers.items()}
        return http


@contextmanager
def _imported_anew(module: str) -> Iterator[None]:
    """A FunctionApp lists its functions once; a worker is a new process, tests share one."""
    before = sys.modules.pop(module, None)
    try:
        yield
    finally:
        sys.modules.pop(module, None)
        if before is not None:
            sys.modules[module] = before


def _request(**request: Any) -> SimpleNamespace:
    return SimpleNamespace(
        request=SimpleNamespace(**request), properties={"host": "127.0.0.1", "protos": protos}
    )


def _system(name: str) -> TypedData:
    """What the host says with every trigger."""
    moment = datetime.now(UTC).isoformat()
    return TypedData(json=json.dumps({"MethodName": name, "UtcNow": moment, "RandGuid": str(uuid.uuid4())}))


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def _text(body: TypedData) -> str:
    value: Any = getattr(body, str(body.WhichOneof("data")))
    return value.decode() if isinstance(value, bytes) else str(value)

"""The app is read as the real host reads it, through ``azure.functions``' own decorators, and checked whole
first.

What cannot be run is refused before anything is: a second function of the same name, a binding that is not
here, a parameter that nothing fills, or one whose annotation the worker of the real host does not take.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_origin, get_type_hints

from azure.functions import meta
from azure.functions.decorators.function_app import Function, FunctionRegister

from devstack.functions.retry import RetryPolicy
from devstack.functions.settings import is_disabled
from devstack.service import CannotStart

TRIGGERS = ("httpTrigger", "cosmosDBTrigger", "serviceBusTrigger", "queueTrigger", "timerTrigger")
HTTP_OUTPUT = "http"
CONTEXT = "context"


@dataclass(frozen=True)
class FunctionInfo:
    """One function as the host sees it."""

    name: str
    trigger: Mapping[str, Any]
    """The trigger's binding as ``azure.functions`` writes it into function.json."""
    retry: RetryPolicy | None
    disabled: bool
    """No listener; over HTTP, 404."""

    @property
    def trigger_type(self) -> str:
        return str(self.trigger["type"])

    @property
    def trigger_argument(self) -> str:
        return str(self.trigger["name"])


@dataclass(frozen=True)
class LoadedFunction:
    """One function as a worker process calls it."""

    info: FunctionInfo
    call: Callable[..., Any]
    is_async: bool
    requires_context: bool


def load_functions(app: Path) -> list[LoadedFunction]:
    """Import ``function_app.py`` in ``app`` and read its functions. Raises CannotStart."""
    module = _import(app / "function_app.py")
    registers = [value for value in vars(module).values() if isinstance(value, FunctionRegister)]
    if len(registers) != 1:
        raise CannotStart(
            f"functions: {app / 'function_app.py'} must define one FunctionApp, it has {len(registers)}; "
            "write app = func.FunctionApp() at its top level"
        )
    try:
        return [_read(function) for function in registers[0].get_functions()]
    except ValueError as error:
        raise CannotStart(f"functions: {error}") from error


def _import(file: Path) -> ModuleType:
    if not file.is_file():
        raise CannotStart(f"functions: there is no {file}; name the folder that has one with --app")
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("function_app", file)
    assert spec is not None, "a .py file always has a loader"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["function_app"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CannotStart(f"functions: cannot import {file}: {_in_one_line(error)}; mend it") from error
    return module


def _in_one_line(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + place


def _read(function: Function) -> LoadedFunction:
    name = function.get_function_name()
    trigger = function.get_trigger()
    if name is None or trigger is None:
        raise CannotStart(f"functions: {name} has no trigger; decorate it with one")
    for binding in function.get_bindings():
        if binding.type not in (*TRIGGERS, HTTP_OUTPUT):
            raise CannotStart(
                f"functions: {name} uses the binding {binding.type}, which is not here; there are {', '.join(TRIGGERS)}"
            )
    call = function.get_user_function()
    parameters = set(inspect.signature(call).parameters)
    _check_parameters(name, parameters, str(trigger.name))
    try:
        annotations = get_type_hints(call)
    except (NameError, TypeError) as error:
        raise CannotStart(
            f"functions: the annotations of {name} cannot be read: {error}; mend them"
        ) from error
    _check_annotations(name, annotations, str(trigger.name), str(trigger.type))
    info = FunctionInfo(
        name=name,
        trigger=dict(trigger.get_dict_repr()),
        retry=_read_retry(function, name),
        disabled=is_disabled(name),
    )
    return LoadedFunction(
        info=info,
        call=call,
        is_async=inspect.iscoroutinefunction(call),
        requires_context=CONTEXT in parameters,
    )


def _check_parameters(name: str, parameters: set[str], trigger_argument: str) -> None:
    if trigger_argument not in parameters:
        raise CannotStart(
            f'functions: {name} has no parameter "{trigger_argument}", which its trigger fills; add it'
        )
    unknown = parameters - {trigger_argument, CONTEXT}
    if unknown:
        raise CannotStart(f"functions: nothing fills the parameter {min(unknown)} of {name}; remove it")


def _check_annotations(name: str, annotations: Mapping[str, Any], argument: str, trigger: str) -> None:
    """As the worker does (``functions.py`` of azure-functions-runtime), which else loads no function of the app."""
    context = annotations.get(CONTEXT)
    if context is not None and getattr(context, "__name__", None) != "Context":
        raise CannotStart(
            f'functions: the parameter "{CONTEXT}" of {name} has to be annotated as azure.functions.Context, '
            "and as nothing else, or not at all"
        )
    given = annotations.get(argument)
    if given is None:
        return
    registry = meta.get_binding_registry()  # type: ignore[no-untyped-call]  # the library does not annotate it
    binding = registry.get("generic" if given in (str, bytes) else trigger)
    origin = get_origin(given)
    fits = isinstance(given, type) or (isinstance(origin, type) and origin is not UnionType)
    if not fits or binding is None or not binding.check_input_type_annotation(given):
        raise CannotStart(
            f'functions: the annotation of the parameter "{argument}" of {name} does not fit a {trigger}: '
            "use the class of azure.functions for it, of several typing.List of it"
        )


def _read_retry(function: Function, name: str) -> RetryPolicy | None:
    setting = function.get_settings_dict("retry_policy")
    if setting is None:
        return None
    try:
        return RetryPolicy.from_decorator(setting)
    except ValueError as error:
        raise CannotStart(f"functions: the retry policy of {name} cannot be used: {error}") from error

"""Delegations for tools of LangChain and LangGraph: a call is checked before the tool runs.

    tools = [delegated(tool, delegation) for tool in tools]

This checks calls inside the program. Against the program itself, only the service's filter helps.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from langchain_core.tools import BaseTool, ToolException
from pydantic_core import to_jsonable_python

from .delegation import Delegation
from .errors import Denied

_Tool = TypeVar("_Tool", bound=BaseTool)

# What the framework passes to a tool beside its arguments.
_FRAMEWORK = frozenset({"run_manager", "config", "callbacks"})


class ToolDenied(Denied, ToolException):
    """The delegation does not grant this call of a tool. The tool did not run."""


def delegated(tool: _Tool, delegation: Delegation, *, name: str | None = None, raises: bool = False) -> _Tool:
    """A copy of a tool that runs only what the delegation grants.

    The arguments that the tool gets are checked, after its schema has converted them and filled in defaults. Arguments
    that the framework injects, such as a state, are not.

    Args:
        tool: The tool.
        delegation: The delegation.
        name: The tool's name in the delegation. By default the tool's own.
        raises: Whether a denial is raised as `ToolDenied`. By default the model gets it as the tool's error, and may
            change its plan.
    """
    kind = type(tool)
    granted_name = name or tool.name
    known = tuple(tool.args)
    injected = (_FRAMEWORK | _injected(tool)) - set(known)
    signature = inspect.signature(kind._run)  # noqa: SLF001 - the method that tools override

    def check(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        call = _arguments(signature, known, arguments, named)
        call = {argument: to_jsonable_python(value) for argument, value in call.items() if argument not in injected}
        try:
            delegation.check(granted_name, call)
        except Denied as denied:
            raise ToolDenied(denied.answer) from None

    class Delegated(kind):  # type: ignore[misc, valid-type]
        @functools.wraps(kind._run)  # noqa: SLF001
        def _run(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, *arguments: Any, **named: Any
        ) -> Any:
            check(arguments, named)
            return super()._run(*arguments, **named)

        @functools.wraps(kind._arun)  # noqa: SLF001
        async def _arun(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, *arguments: Any, **named: Any
        ) -> Any:
            check(arguments, named)
            return await super()._arun(*arguments, **named)

    Delegated.__name__ = kind.__name__
    copy: _Tool = tool.model_copy()
    copy.__class__ = Delegated  # pyright: ignore[reportAttributeAccessIssue]
    if not raises:
        copy.handle_tool_error = _handler(tool.handle_tool_error)
    return copy


def _arguments(
    signature: inspect.Signature, known: tuple[str, ...], arguments: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    """The arguments by name, with the defaults of the tool's method."""
    bound = signature.bind(None, *arguments, **named)
    bound.apply_defaults()
    call: dict[str, Any] = {}
    for parameter in list(signature.parameters.values())[1:]:  # Without `self`.
        value = bound.arguments[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            call.update(value)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            call.update(zip(known, value, strict=True) if value else {})
        else:
            call[parameter.name] = value
    return call


def _injected(tool: BaseTool) -> frozenset[str]:
    """The arguments that the framework injects and the model does not see."""
    fields = getattr(tool.get_input_schema(), "model_fields", {})
    hidden = frozenset(fields) - frozenset(tool.args)
    # Those of a type such as `ToolRuntime`, which no schema shows. There is no public way to list them.
    return hidden | frozenset(getattr(tool, "_injected_args_keys", ()))


def _handler(own: Any) -> Callable[[ToolException], Any]:
    """Answers denials, and leaves other errors to the tool's own setting."""

    def handle(error: ToolException) -> Any:
        if isinstance(error, ToolDenied):
            return str(error)
        if not own:
            raise error
        if callable(own):
            return own(error)
        return own if isinstance(own, str) else (error.args[0] if error.args else "Tool execution error")

    return handle

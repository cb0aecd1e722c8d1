"""Tools of LangChain, and an agent of LangGraph with a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException, tool
from langgraph.prebuilt import InjectedState
from pydantic import BaseModel

import credence
from credence.langchain import ToolDenied, delegated

TOOL = "payments.charge"
ran: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@tool(TOOL)
def decorated(account: str, amount: int = 50) -> str:
    """Charges an account."""
    ran.append({"account": account, "amount": amount})
    return f"charged {amount}"


class Class(BaseTool):
    """A tool that is a class."""

    name: str = TOOL
    description: str = "Charges an account."

    def _run(self, account: str, amount: int = 50) -> str:
        ran.append({"account": account, "amount": amount})
        return f"charged {amount}"


async def _charge(account: str, amount: int = 50) -> str:
    """Charges an account."""
    ran.append({"account": account, "amount": amount})
    return f"charged {amount}"


asynchronous = StructuredTool.from_function(coroutine=_charge, name=TOOL)


@pytest.mark.parametrize("original", [decorated, Class()])
def test_a_granted_call_runs_and_another_does_not(original: BaseTool, delegation: credence.Delegation) -> None:
    wrapped = delegated(original, delegation, raises=True)
    assert isinstance(wrapped, type(original))
    assert (wrapped.name, wrapped.description, wrapped.args) == (original.name, original.description, original.args)
    assert wrapped.invoke({"account": "a1", "amount": 15}) == "charged 15"
    assert wrapped.invoke({"account": "a1"}) == "charged 50"
    for denied, about in [({"account": "a2", "amount": 15}, "account"), ({"account": "a1", "amount": 101}, "amount")]:
        with pytest.raises(ToolDenied) as raised:
            wrapped.invoke(denied)
        assert (raised.value.reason, raised.value.argument) == ("argument_not_allowed", about)
        with pytest.raises(ToolDenied):
            asyncio.run(wrapped.ainvoke(denied))
    assert len(ran) == 2
    assert original.invoke({"account": "a2", "amount": 1000}) == "charged 1000"  # The original is unchanged.


def test_an_asynchronous_tool_is_checked(delegation: credence.Delegation) -> None:
    wrapped = delegated(asynchronous, delegation)
    assert asyncio.run(wrapped.ainvoke({"account": "a1", "amount": 15})) == "charged 15"
    assert "argument_not_allowed" in asyncio.run(wrapped.ainvoke({"account": "a1", "amount": 101}))
    assert len(ran) == 1


class Place(BaseModel):
    """Where to charge."""

    account: str


def test_arguments_are_checked_as_the_tool_gets_them(issuer: credence.Key, key: credence.Key) -> None:
    from .minting import mint

    tools: dict[str, Any] = {"text": {}, "place": {"place": {"constraint_type": "exact", "value": "x"}}}
    delegation = credence.Delegation.parse(mint(issuer, key.public_jwk, tools=tools))

    @tool("place")
    def at(place: Place) -> str:
        """Charges somewhere."""
        return place.account

    assert "argument_not_allowed" in delegated(at, delegation).invoke({"place": {"account": "a1"}})
    text = Tool("text", lambda value: value + "!", "Repeats a text.")
    assert delegated(text, delegation).invoke("hello") == "hello!"
    assert "tool_not_granted" in delegated(text, delegation, name="other").invoke("hello")


def test_other_errors_are_the_tools_own(delegation: credence.Delegation) -> None:
    @tool(TOOL)
    def failing(account: str, amount: int) -> str:
        """Fails."""
        raise ToolException(f"{account} {amount}")

    with pytest.raises(ToolException, match="a1"):
        delegated(failing, delegation).invoke({"account": "a1", "amount": 1})
    failing.handle_tool_error = "try later"
    assert delegated(failing, delegation).invoke({"account": "a1", "amount": 1}) == "try later"


class Scripted(GenericFakeChatModel):
    """A model that says what the test wrote."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        assert tools
        return self


def _calls(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": "1", "type": "tool_call"}])


def test_an_agent_learns_that_a_call_was_denied(delegation: credence.Delegation) -> None:
    model = Scripted(
        messages=iter(
            [_calls(TOOL, account="a1", amount=500), _calls(TOOL, account="a1", amount=100), AIMessage("Charged 100.")]
        )
    )
    agent = create_agent(model, [delegated(decorated, delegation)])
    messages = agent.invoke({"messages": [("user", "Charge a1 500, or what is allowed.")]})["messages"]
    answers = [message for message in messages if isinstance(message, ToolMessage)]
    assert [answer.status for answer in answers] == ["error", "success"]
    assert "argument_not_allowed (amount)" in answers[0].text
    assert messages[-1].text == "Charged 100."
    assert ran == [{"account": "a1", "amount": 100}]


def test_an_agent_can_be_stopped_by_a_denial(delegation: credence.Delegation) -> None:
    model = Scripted(messages=iter([_calls(TOOL, account="a1", amount=500)]))
    agent = create_agent(model, [delegated(decorated, delegation, raises=True)])
    with pytest.raises(ToolDenied):
        agent.invoke({"messages": [("user", "Charge a1 500.")]})
    assert ran == []


def test_injected_arguments_are_not_checked(delegation: credence.Delegation) -> None:
    @tool(TOOL)
    def with_state(
        account: str, amount: int, runtime: ToolRuntime, state: Annotated[dict[str, Any], InjectedState]
    ) -> str:
        """Charges an account."""
        ran.append({"state": sorted(state), "runtime": type(runtime).__name__})
        return f"charged {account} {amount}"

    model = Scripted(messages=iter([_calls(TOOL, account="a1", amount=5), AIMessage("Done.")]))
    agent = create_agent(model, [delegated(with_state, delegation, raises=True)])
    messages = agent.invoke({"messages": [("user", "Charge a1 5.")]})["messages"]
    assert [message.text for message in messages if isinstance(message, ToolMessage)] == ["charged a1 5"]
    assert ran == [{"state": ["messages"], "runtime": "ToolRuntime"}]

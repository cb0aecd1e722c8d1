"""The programs of the README are those in `examples`, and they run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import credence

from .minting import AUDIENCE, TOOLS, mint
from .servers import Server
from .test_mcp import TOOLS as WEATHER
from .test_mcp import Checked
from .test_mcp import server as mcp_server

__all__ = ["mcp_server"]

PACKAGE = Path(__file__).parent.parent
EXAMPLES = sorted((PACKAGE / "examples").glob("*.py"))


def test_each_program_is_in_the_readme_as_it_is() -> None:
    fences = re.findall(r"^```python\n# examples/(\S+)\n(.*?)^```$", (PACKAGE / "README.md").read_text(), re.M | re.S)
    assert dict(fences) == {path.name: path.read_text() for path in EXAMPLES}
    assert (PACKAGE / "README.md").read_text().count("```python") == len(fences)


@pytest.fixture
def folder(tmp_path: Path, issuer: credence.Key) -> Path:
    key = credence.Key.generate()
    key.save(tmp_path / "agent.jwk")
    (tmp_path / "delegation.txt").write_text(mint(issuer, key.public_jwk, tools={**TOOLS, **WEATHER}))
    (tmp_path / "worker.pub").write_text(json.dumps(credence.Key.generate().public_jwk))
    return tmp_path


def _run(name: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(PACKAGE / "examples" / name), *arguments]
    environment = {**os.environ, "AGENT_KEY_PASSPHRASE": "correct horse"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_first_program_makes_a_key(tmp_path: Path) -> None:
    public = json.loads(_run("new_key.py", tmp_path))
    assert credence.Key.load(tmp_path / "agent.jwk").public_jwk == public


def test_requests_are_sent_or_denied(folder: Path, server: Server) -> None:
    assert _run("first_request.py", folder, server.origin, AUDIENCE) == "200\nargument_not_allowed amount\n"
    assert _run("with_requests.py", folder, server.origin, AUDIENCE) == "200\n"


def test_tools_of_mcp_are_called(folder: Path, mcp_server: Checked) -> None:
    output = _run("with_mcp.py", folder, mcp_server.origin, AUDIENCE)
    assert "Rain in Oslo" in output
    assert "'reason': 'argument_not_allowed'" in output


def test_tools_of_langchain_are_called(folder: Path) -> None:
    output = _run("with_langchain.py", folder).splitlines()
    assert output[0] == "charged a1 15"
    assert "argument_not_allowed (amount)" in output[1]


def test_a_delegation_is_handed_on(folder: Path) -> None:
    _run("hand_on.py", folder)
    narrower = credence.Delegation.parse((folder / "worker-delegation.txt").read_text())
    assert narrower.depth == 1


def test_keys_are_kept(folder: Path) -> None:
    assert credence.Key.load(folder / "agent.jwk").thumbprint in _run("encrypted_key.py", folder)
    assert _run("remote_key.py", folder) == "2\n"

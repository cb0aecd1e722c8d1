"""Fails the build if the WebAssembly module is missing, because the package cannot work without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AgentModule(BuildHookInterface[Any]):
    """Looks for the module before anything is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        module = Path(self.root) / "src" / "credence" / "agent.wasm"
        if not module.is_file() or module.read_bytes()[:4] != b"\0asm":
            message = f"{module} is missing or not a WebAssembly module; copy the built credence-agent-wasm.wasm there"
            raise FileNotFoundError(message)

"""The WebAssembly module that decides: one instance for the process.

All checks of chains, constraints, proofs and requests happen in this module, in the code of the service's filter.
It has no imports, so it can reach neither network, files nor keys.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Mapping
from importlib import resources
from typing import Any, cast

import wasmtime

from .errors import Denied, InputError, ModuleError

MAX_MEMORY = 1 << 28
"""The memory that an instance may use, in bytes."""


class InstanceGone(Exception):
    """The services of a stopped instance must be opened again."""


class Module:
    """An instance, shared by all threads. One call runs at a time.

    If an instance stops, its services are lost and `generation` rises. A caller that opened a service opens it again.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._lock = threading.Lock()
        self._instance: _Instance | None = None
        self._code: tuple[wasmtime.Engine, wasmtime.Module] | None = None
        self._to_close: deque[tuple[int, int]] = deque()

    def call(self, operation: Mapping[str, Any], data: bytes = b"", *, generation: int | None = None) -> dict[str, Any]:
        """Carries out one operation.

        Args:
            operation: The operation, as `{"name": {…}}`.
            data: The bytes beside it: a line, a document or a body.
            generation: The instance that must answer: another one has other services. None: any.

        Raises:
            Denied: The service would deny the call.
            InputError: The operation cannot be carried out.
            InstanceGone: The instance of that generation is gone.
            ModuleError: The module stopped.
        """
        return self._call(operation, data, generation)[0]

    def open(self, operation: Mapping[str, Any], document: bytes) -> tuple[dict[str, Any], int]:
        """Opens a service. Also returns the generation of the instance that has it. See `call`."""
        return self._call(operation, document, None)

    def _call(self, operation: Mapping[str, Any], data: bytes, generation: int | None) -> tuple[dict[str, Any], int]:
        try:
            text = json.dumps(operation, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a value is not JSON: {error}") from None
        with self._lock:
            instance = self._running()
            if generation not in (None, self.generation):
                raise InstanceGone
            try:
                while self._to_close:
                    service, opened_in = self._to_close.popleft()
                    if opened_in == self.generation:
                        instance.answer(json.dumps({"close": {"service": service}}).encode(), b"")
                answer = instance.answer(text, data)
            except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
                self._instance = None
                raise ModuleError("the WebAssembly module stopped; the next call starts a new one") from error
            return _result(answer), self.generation

    def close_later(self, service: int, generation: int) -> None:
        """Closes a service before the next call. Takes no lock, so that a finalizer may call this."""
        self._to_close.append((service, generation))

    def abandon(self) -> None:
        """Leaves the instance and the lock, for the child after a fork."""
        self._lock = threading.Lock()
        self._instance = None

    def _running(self) -> _Instance:
        if self._instance is None:
            if self._code is None:
                config = wasmtime.Config()
                config.parallel_compilation = False  # The threads of a parallel compiler do not survive a fork.
                engine = wasmtime.Engine(config)
                self._code = (engine, wasmtime.Module(engine, _code()))
            self._instance = _Instance(*self._code)
            self.generation += 1
        return self._instance


class _Instance:
    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        self._store = wasmtime.Store(engine)
        self._store.set_limits(memory_size=MAX_MEMORY)
        exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        self._memory = cast("wasmtime.Memory", exports["memory"])
        self._input = cast("wasmtime.Func", exports["credence_input"])
        self._answer = cast("wasmtime.Func", exports["credence_answer"])
        self._answer_bytes = cast("wasmtime.Func", exports["credence_answer_bytes"])

    def answer(self, operation: bytes, data: bytes) -> bytes:
        store = self._store
        # Addresses are unsigned in the module, and signed here.
        at = self._input(store, len(operation) + len(data)) & 0xFFFF_FFFF
        self._memory.write(store, operation + data, at)
        start = self._answer(store, len(operation)) & 0xFFFF_FFFF
        size = self._answer_bytes(store) & 0xFFFF_FFFF
        return bytes(self._memory.read(store, start, start + size))


def _result(answer: bytes) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(answer)
    if "error" in result:
        raise InputError(result["error"])
    if "denied" in result:
        raise Denied(result["denied"])
    return result


def _code() -> bytes:
    file = resources.files("credence").joinpath("agent.wasm")
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise ModuleError(
            "agent.wasm is missing in this installation; install the package again, or copy the built module to "
            "src/credence/agent.wasm in a source tree"
        ) from None


shared = Module()
"""The module of this process."""


def _after_fork() -> None:
    # The parent's other threads do not exist here: one may have held the lock or used the instance.
    shared.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#!/usr/bin/env python3
"""Removes exports from a Wasm module:  prune-exports.py MODULE OUTPUT NAME...

OUTPUT is MODULE with only the named exports. The proxy-wasm SDK exports every callback, and each costs a call into the VM
at its event. The functions themselves stay: no other part of the module changes.
"""

import sys
from pathlib import Path

HEADER_BYTES = 8
EXPORT_SECTION = 7


def main() -> None:
    module, output, names = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), set(sys.argv[3:])
    pruned, at = bytearray(module[:HEADER_BYTES]), HEADER_BYTES
    while at < len(module):
        section = module[at]
        size, start = number(module, at + 1)
        at = start + size
        content = module[start:at]
        if section == EXPORT_SECTION:
            content = prune(content, names)
        pruned += bytes([section]) + encoded(len(content)) + content
    output.write_bytes(pruned)


def prune(section: bytes, names: set[str]) -> bytes:
    """An export is its name, a byte for its kind, and its index."""
    kept, missing = [], set(names)
    count, at = number(section, 0)
    for _ in range(count):
        start = at
        length, at = number(section, at)
        name = section[at : at + length].decode()
        _, at = number(section, at + length + 1)
        if name in names:
            kept.append(section[start:at])
            missing.discard(name)
    if missing:
        sys.exit(f"error: the module does not export {', '.join(sorted(missing))}")
    return encoded(len(kept)) + b"".join(kept)


def number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number, and the offset after it."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


def encoded(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(digits) + bytes([value])


if __name__ == "__main__":
    main()

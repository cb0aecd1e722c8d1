#!/usr/bin/env python3
"""Packs the filter module for a registry, in both layouts that Istio and Envoy Gateway read:  module-layouts.py MODULE FOLDER

    FOLDER/compat      an image of one layer, a tar archive with the file plugin.wasm
    FOLDER/artifact    the module and its description, each as a blob

Each is an OCI image layout (OCI Image Specification 1.1, image-layout.md) of one manifest, as a folder and as a .tar. Istio
compares the pinned digest with the manifest's, so there is no index. The layouts are specified at
https://github.com/solo-io/wasm/tree/master/spec: spec-compat.md and spec.md.

The bytes depend only on the module: not on the time, the machine or the version of a compressor. Prints a line for each:
its name, the digest to pin, its folder.
"""

import hashlib
import io
import json
import re
import shutil
import struct
import sys
import tarfile
import zlib
from pathlib import Path


def main():
    if len(sys.argv) != 3:
        sys.exit(f"error: expected a module and a folder\n       Use:  {sys.argv[0]} MODULE FOLDER")
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        module = source.read_bytes()
    except OSError as error:
        sys.exit(f"error: cannot read the module: {error}\n       `make wasm` builds it.")
    layouts = {"compat": compat(module), "artifact": artifact(module, abi_version(module, source))}
    print(f"module sha256:{sha256(module)} {source}")
    for name, layout in layouts.items():
        layout.write(folder / name)
        print(f"{name} sha256:{layout.digest} {folder / name}")


def compat(module):
    """Looks like an ordinary image, so that every registry accepts it."""
    files = archive({PLUGIN: module})
    layer = stored_gzip(files)
    config = {
        "architecture": "wasm",
        "os": "wasip1",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(files)}"]},
    }
    return Layout(
        config=("application/vnd.oci.image.config.v1+json", canonical(config)),
        layers=[("application/vnd.oci.image.layer.v1.tar+gzip", layer, {})],
        annotations={"module.wasm.image/variant": "compat"},
    )


def artifact(module, abi):
    """The module's blob is the module itself, so its digest is that of the file."""
    description = ("application/vnd.module.wasm.config.v1+json", canonical(
        # No root_ids: the module has one root context, for any name.
        {"type": "envoy_proxy", "abiVersions": [abi], "config": {"root_ids": []}}
    ))
    return Layout(
        # As the config, it tells registries the kind of artifact. It must also be a layer, since Istio reads only
        # artifacts with exactly two layers.
        config=description,
        layers=[
            (*description, {TITLE: "runtime-config.json"}),
            ("application/vnd.module.wasm.content.layer.v1+wasm", module, {TITLE: PLUGIN}),
        ],
        annotations={},
    )


class Layout:
    """An OCI image layout of one manifest."""

    def __init__(self, config, layers, annotations):
        self.files = {}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.add(*config),
            "layers": [self.add(media_type, blob, titles) for media_type, blob, titles in layers],
            "annotations": {"org.opencontainers.image.licenses": "Apache-2.0", **annotations},
        }
        descriptor = self.add(MANIFEST, canonical(manifest))
        self.digest = descriptor["digest"].removeprefix("sha256:")
        self.files["index.json"] = canonical(
            {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [descriptor]}
        )
        self.files["oci-layout"] = canonical({"imageLayoutVersion": "1.0.0"})

    def add(self, media_type, blob, annotations=None):
        """Adds a blob and returns its descriptor."""
        digest = sha256(blob)
        self.files[f"blobs/sha256/{digest}"] = blob
        descriptor = {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(blob)}
        return {**descriptor, "annotations": annotations} if annotations else descriptor

    def write(self, folder):
        """Writes it as a folder, replacing an existing one, and as a tar archive beside it."""
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        folder.with_name(f"{folder.name}.tar").write_bytes(archive(self.files))


def archive(files):
    """A tar archive with sorted entries, without owner and time."""
    folders = {str(parent) for name in files for parent in Path(name).parents if parent.name}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted({*files, *folders}):
            entry = tarfile.TarInfo(name)
            if name in files:
                entry.size, entry.mode = len(files[name]), 0o644
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry, io.BytesIO(files.get(name, b"")))
    return buffer.getvalue()


def stored_gzip(content):
    """RFC 1952 with stored blocks (RFC 1951, section 3.2.4), since the output of compressors differs."""
    blocks = [content[start : start + LARGEST_STORED] for start in range(0, len(content), LARGEST_STORED)] or [b""]
    out = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"]
    for block in blocks:
        out += [struct.pack("<BHH", block is blocks[-1], len(block), len(block) ^ 0xFFFF), block]
    out.append(struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF))
    return b"".join(out)


def abi_version(module, source):
    """The Proxy-Wasm ABI version, which a module names by an export."""
    found = re.search(rb"proxy_abi_version_(\d+)_(\d+)_(\d+)", module)
    if not module.startswith(b"\0asm") or not found:
        sys.exit(f"error: {source} is not a Proxy-Wasm module\n       `make wasm` builds one.")
    return "v" + ".".join(part.decode() for part in found.groups())


def canonical(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TITLE = "org.opencontainers.image.title"
PLUGIN = "plugin.wasm"
LARGEST_STORED = 0xFFFF

main()

"""The values that both applications read, and their names."""

import os
from importlib.metadata import version

# The framework and the server, such as django-uvicorn.
ORACLE = os.environ["ORACLE"]
VERSION = ", ".join(f"{name} {version(name)}" for name in ORACLE.split("-"))
QUERY = ["full", "full_export", "q", "limit", "note", "teaser", "mode"]


def header_name(key):
    """The header of an environment key (RFC 3875, section 4.1.18)."""
    return key.removeprefix("HTTP_").replace("_", "-").lower()


def split_host(host):
    """The host without a port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host

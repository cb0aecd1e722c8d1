"""The memory of a proxy at rest."""

import tempfile
from pathlib import Path

from .case import Case
from .envoy import Envoy


def added_mib(binary: str, case: Case, scratch: Path) -> float:
    """What a case adds to the resident memory of an Envoy with one worker, hence two VMs, once it serves."""

    def at_rest(served: Case) -> float:
        with Envoy(binary, [served], Path(tempfile.mkdtemp(dir=scratch))) as envoy:
            envoy.check(served)
            return envoy.settled_memory_mib()

    return round(at_rest(case) - at_rest(Case("bare", filters=[])), 1)

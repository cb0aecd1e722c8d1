"""How fast the machine is just now. A virtual machine shares its cores with others, who make it slower by half for seconds
or minutes, and not all work alike: arithmetic more than system calls. So each sample is taken between two short fixed
computations on Envoy's core, and begins, if it can be had, while these are about as fast as they ever were."""

import os
import time

CORE = 0
# Some 8 ms.
STEPS = 60_000
# Slower than the fastest so far, and still calm.
TOLERANCE = 1.15
# To wait for one sample, and for all of a run together.
PATIENCE_SECONDS = 5
PATIENCE_IN_ALL_SECONDS = 240

_fastest = float("inf")
_patience = float(PATIENCE_IN_ALL_SECONDS)


def wait() -> float:
    """Waits until it is calm, but not forever. What the computation took then, in milliseconds."""
    global _patience
    begin = time.monotonic()
    while True:
        took = probe()
        waited = time.monotonic() - begin
        if took <= TOLERANCE * _fastest or waited >= min(PATIENCE_SECONDS, _patience):
            _patience -= waited
            return took
        time.sleep(0.2)


def probe() -> float:
    """What the computation takes, in milliseconds."""
    global _fastest
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CORE})
    try:
        # Time without a core does not count.
        begin = time.thread_time()
        number = 1
        for _ in range(STEPS):
            number = number * 6_364_136_223_846_793_005 % 18_446_744_073_709_551_557
        took = (time.thread_time() - begin) * 1000
    finally:
        os.sched_setaffinity(0, allowed)
    _fastest = min(_fastest, took)
    return took

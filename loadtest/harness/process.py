"""The kernel's data about a process."""

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, in nanoseconds; /proc/PID/stat counts in ticks of 10 ms."""
    tasks = f"/proc/{pid}/task"
    nanoseconds = 0
    for task in os.listdir(tasks):
        with open(f"{tasks}/{task}/schedstat", encoding="ascii") as schedstat:
            nanoseconds += int(schedstat.read().split()[0])
    return nanoseconds / 1e9


def resident_mib(pid: int) -> float:
    """The resident memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024

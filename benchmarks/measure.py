"""What every benchmark needs: timing, peak memory, and a description of the machine."""

import os
import platform
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import coterie


def seconds(action: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Run `action` several times after one warm-up; return the median and the slowest time."""
    action()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return {"median_s": statistics.median(times), "slowest_s": max(times)}


def extra_megabytes(action: Callable[[], Any]) -> float:
    """Return the most memory that one run of `action` holds at a time beyond what was held before."""
    tracemalloc.start()
    action()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def peak_megabytes() -> float:
    """Return the most memory that this process has held so far, in 10^6 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def machine() -> dict[str, Any]:
    """Describe where the numbers come from."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "coterie": coterie.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()

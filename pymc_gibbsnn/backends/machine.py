"""How much memory and how many cores this machine has to give."""

from __future__ import annotations

import os

__all__ = ["count_cores", "free_memory", "memory_warning"]


def free_memory() -> int | None:
    """Return how many bytes of memory are free; None where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            return None


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_warning(sizes: dict[str, int], draws: int) -> str:
    """Write a warning if free memory does not hold so many draws of variables, given their sizes in bytes by name.

    It is empty if the memory is enough.
    """
    needed, free = draws * sum(sizes.values()), free_memory()
    if free is None or needed <= free:
        return ""
    largest = sorted(sizes, key=sizes.get, reverse=True)[:2]
    return (
        f"Recording {draws} draws a chain of {sorted(sizes)} needs {needed / 2**30:.1f} GiB, of which "
        f"{free / 2**30:.1f} GiB are free. Most of it is {' and '.join(largest)}: name only what you need in "
        f"var_names=."
    )

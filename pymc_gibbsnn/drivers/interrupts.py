"""What an interrupt (Ctrl-C) may not cut."""

from __future__ import annotations

import threading

# Of the module signal, which looks up a name for each handler: that takes ten times as long.
from _signal import SIGINT, getsignal, signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[Callable[[], None]]:
    """Put an interrupt off until the block is left, or until the function that it gives is called.

    Python runs what an interrupt calls, and so raises KeyboardInterrupt, wherever it comes to a line of Python: also in
    those that compiled code runs to take its arguments apart, where the exception is lost or becomes another one.
    An interrupt that came meanwhile is handed to the handler that was there before, Python's or the user's own. Other
    threads than the main one, which no handler runs in, need nothing. It takes a few microseconds.
    """
    usual = getsignal(SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came = []

    def hand_over() -> None:
        while came:
            usual(*came.pop())

    signal(SIGINT, lambda *interrupt: came.append(interrupt))
    try:
        yield hand_over
    finally:
        signal(SIGINT, usual)
        hand_over()

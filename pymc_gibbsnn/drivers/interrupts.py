"""How a piece of work is protected from an interrupt (Ctrl-C) in the middle of it."""

from __future__ import annotations

import threading

# The module ``signal`` has the same functions, but looks up a name for each handler, which takes ten times as long.
from _signal import SIGINT, getsignal, signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["uninterrupted"]


class Interrupts:
    """Interrupts that have come and not yet been handed over; calling it hands them to the handler of before."""

    def __init__(self, usual: Callable):
        self.usual, self.came = usual, []

    def __call__(self) -> None:
        while self.came:
            self.usual(*self.came.pop())


@contextmanager
def uninterrupted() -> Iterator[Interrupts]:
    """Put an interrupt off until the context ends, or until the object is called that the context provides.

    Python handles an interrupt, and raises KeyboardInterrupt, at the next line of Python that it runs. This may be a
    line that compiled code runs to take its arguments apart, where the exception is lost or becomes another one. An
    interrupt that came in the meantime is then handed to the handler that was there before, Python's or the user's own.
    In threads other than the main one nothing is done, since no handler runs there. It takes a few microseconds.
    """
    usual = getsignal(SIGINT)
    interrupts = Interrupts(usual)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    signal(SIGINT, lambda *interrupt: interrupts.came.append(interrupt))
    try:
        yield interrupts
    finally:
        signal(SIGINT, usual)
        interrupts()

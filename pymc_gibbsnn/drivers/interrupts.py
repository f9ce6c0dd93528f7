"""How a piece of work is protected from an interrupt (Ctrl-C) in the middle of it, and an interrupt from being lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIG_DFL, SIGINT, SIGTERM
from types import FrameType

try:  # which has the functions of ``signal``, but does not look up a name for each handler: a tenth of the time
    from _signal import getsignal, signal
except ImportError:
    from signal import getsignal, signal

__all__ = ["Interrupts", "remembered", "uninterrupted"]


class Interrupts:
    """Interrupts that have come and not yet been handed over."""

    def __init__(self, usual: dict[int, Callable]):
        self.usual, self.came = usual, []

    def __call__(self) -> None:
        """Hand them to the handlers of before."""
        while self.came:
            number, frame = self.came.pop()
            self.usual[number](number, frame)


@contextmanager
def uninterrupted(*others: int) -> Iterator[Interrupts]:
    """Put an interrupt off until the context ends, or until the object is called that the context provides.

    Python handles an interrupt, and raises KeyboardInterrupt, at the next line of Python that it runs. This may be a
    line that compiled code runs to take its arguments apart, where the exception is lost or becomes another one. An
    interrupt that came in the meantime is then handed to the handler that was there before, Python's or the user's own.
    In threads other than the main one nothing is done, since no handler runs there. It takes a few microseconds.

    Parameters
    ----------
    *others : int
        Further signals to put off. SIGTERM, if nobody handles it, then raises SystemExit in place of the sudden death
        that the system has for it.
    """
    handlers = {number: getsignal(number) for number in (SIGINT, *others)}
    usual = {n: _terminate if n == SIGTERM and handler == SIG_DFL else handler for n, handler in handlers.items()}
    usual = {n: handler for n, handler in usual.items() if callable(handler)}
    if threading.current_thread() is not threading.main_thread():
        usual = {}
    interrupts = Interrupts(usual)
    for number in usual:
        signal(number, lambda *interrupt: interrupts.came.append(interrupt))
    try:
        yield interrupts
    finally:
        for number in usual:
            signal(number, handlers[number])
        interrupts()


@contextmanager
def remembered() -> Iterator[Interrupts]:
    """Let an interrupt take effect at once, and again at the end of the context, or at a call, if it had none.

    An exception is lost where compiled code calls Python and has nobody to hand it to: JAX has a callback of the
    garbage collector, and LLVM one for each piece of code that it compiles. In compiled code it may also become another
    error, in place of which the interrupt is raised then. Who catches KeyboardInterrupt inside the context clears what
    came. Handlers that raise nothing, and threads other than the main one, are left alone.
    """
    usual = getsignal(SIGINT)
    interrupts = Interrupts({SIGINT: usual})
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def handle(*interrupt) -> None:
        try:
            usual(*interrupt)
        except BaseException:
            interrupts.came.append(interrupt)
            raise

    signal(SIGINT, handle)
    try:
        yield interrupts
    except KeyboardInterrupt:
        interrupts.came.clear()
        raise
    finally:
        signal(SIGINT, usual)
        interrupts()


def _terminate(number: int, frame: FrameType | None) -> None:
    """End the process by an exception, so that what is open is closed; a shell shows the same status for SIGTERM."""
    raise SystemExit(128 + number)

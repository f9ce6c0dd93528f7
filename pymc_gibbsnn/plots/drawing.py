"""What several figures need."""

from __future__ import annotations

from types import ModuleType

__all__ = ["pyplot"]


def pyplot() -> ModuleType:
    """Matplotlib's ``pyplot``, which takes long to import and need not be installed.

    Raises
    ------
    ImportError
        If it is not.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Figures need Matplotlib, which is missing: pip install 'pymc-gibbsnn[plots]'.") from None
    return plt

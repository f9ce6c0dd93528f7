"""Samplers for Bayesian neural networks, as PyMC step methods.

Write a network as a plain PyMC model, by hand or with :func:`mlp` and its relatives, and sample it with
``pm.sample(step=pymc_gibbsnn.GibbsNN())`` or another step method of this package, or in JAX with :func:`sample`.
"""

# The public names, and where they are defined, stand in __init__.pyi. A name is imported when it is first used, since
# what some of them need, such as Numba, takes longer to import than PyMC 6 itself.

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
# A star import must not hide Python's own open, nor ask for scikit-learn, which is no dependency
__all__ = [name for name in __all__ if name not in ("open", "NetworkClassifier", "NetworkRegressor")]

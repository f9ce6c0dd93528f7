"""The logarithm of the standard normal distribution function Φ, as a PyTensor graph.

PyMC's own, of which the densities of truncated and censored normals are made, rests on the function erfcx.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.math import Erfcx

from pymc_gibbsnn.backends.jax_backend import declare_jax

__all__ = ["log_normal_cdf"]

FAR = {"float32": -12.0, "float64": -30.0}  # where Φ is still far from underflow


def log_normal_cdf(x: Variable) -> Variable:
    """Compute log Φ(x) elementwise, to the precision of x.

    Beyond what the complementary error function reaches it is the asymptotic series
    log φ(x) − log(−x) + log(1 − 1/x² + 3/x⁴ − 15/x⁶ + 105/x⁸).
    """
    near = pt.maximum(x, FAR[x.dtype])
    far = 1 / pt.minimum(x, FAR[x.dtype]) ** 2
    series = -(x**2) / 2 + pt.log(far) / 2 + pt.log1p(-far * (1 - far * (3 - far * (15 - far * 105))))
    central = pt.log(pt.erfc(-near * math.sqrt(0.5)) / 2)
    return pt.switch(x < FAR[x.dtype], series - math.log(2 * math.pi) / 2, central)


def _erfcx(op: Erfcx, **kwargs) -> Callable:
    """Give JAX erfcx, for which PyTensor asks for a development version of TensorFlow Probability.

    That of JAX itself, which new versions have, is 0 around 26.6 as of jax 0.10.2.
    """
    from pymc_gibbsnn.random._jax import erfcx

    return erfcx


declare_jax(Erfcx, _erfcx)

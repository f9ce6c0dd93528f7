"""The logarithm of the distribution function Φ of the standard normal law, as a PyTensor graph."""

from __future__ import annotations

import math

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

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

"""What is learnt from a run: whether chains have thermalised and converged, and the scores of predictions."""

from pymc_gibbsnn.diagnostics import scoring

__all__ = ["scoring"]

"""What is learnt from a run: whether chains have thermalised, the network's function, predictions and their scores."""

from pymc_gibbsnn.diagnostics import scoring

__all__ = ["scoring"]

"""Figures of posteriors and of how far chains have thermalised, made with Matplotlib; each returns its axes."""

from pymc_gibbsnn.plots.classes import plot_acceptance, plot_class_probabilities
from pymc_gibbsnn.plots.convergence import plot_rhat, plot_thermalisation
from pymc_gibbsnn.plots.functions import plot_calibration, plot_coverage, plot_log_density, plot_predictive_band
from pymc_gibbsnn.plots.partial_dependence import plot_partial_dependence
from pymc_gibbsnn.plots.predictive_check import plot_ppc
from pymc_gibbsnn.plots.relevance import plot_relevance
from pymc_gibbsnn.plots.residuals import plot_residuals

__all__ = [
    "plot_acceptance",
    "plot_calibration",
    "plot_class_probabilities",
    "plot_coverage",
    "plot_log_density",
    "plot_partial_dependence",
    "plot_ppc",
    "plot_predictive_band",
    "plot_relevance",
    "plot_residuals",
    "plot_rhat",
    "plot_thermalisation",
]

"""Samplers for Bayesian neural networks, as PyMC step methods.

Write a network as a plain PyMC model, by hand or with :func:`mlp` and its relatives, and sample it with
``pm.sample(step=pymc_gibbsnn.GibbsNN())`` or another step method of this package, or in JAX with :func:`sample`.
"""

from pymc_gibbsnn._version import __version__
from pymc_gibbsnn.diagnostics import scoring
from pymc_gibbsnn.diagnostics.function_space import function_space
from pymc_gibbsnn.diagnostics.log_predictive import log_predictive
from pymc_gibbsnn.diagnostics.prediction import class_probabilities, predict
from pymc_gibbsnn.diagnostics.thermalisation import thermalisation
from pymc_gibbsnn.drivers.gaussian_steps import MALA, PCN, PCNL
from pymc_gibbsnn.drivers.gibbs_step import GibbsNN
from pymc_gibbsnn.drivers.metropolis_steps import FNBG
from pymc_gibbsnn.drivers.sample import sample
from pymc_gibbsnn.drivers.stochastic_steps import ISGD, SGHMC, SGLD, ConstantSGD
from pymc_gibbsnn.models.classical import classical_mlp
from pymc_gibbsnn.models.datasets import noisy_xor
from pymc_gibbsnn.models.initial_values import initial_values
from pymc_gibbsnn.models.mlp import mlp
from pymc_gibbsnn.models.teachers import TeacherStudent, teacher_student
from pymc_gibbsnn.models.wide import wide_mlp
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.forms import NetworkError
from pymc_gibbsnn.networks.likelihoods import ArgmaxLabel, SignLabel
from pymc_gibbsnn.plots import (
    plot_acceptance,
    plot_calibration,
    plot_class_probabilities,
    plot_coverage,
    plot_log_density,
    plot_predictive_band,
    plot_rhat,
    plot_thermalisation,
)
from pymc_gibbsnn.samplers.alpha_stable import stable_parameters
from pymc_gibbsnn.samplers.blocks import correlated_blocks

__all__ = [
    "ArgmaxLabel",
    "ConstantSGD",
    "FNBG",
    "GibbsNN",
    "ISGD",
    "MALA",
    "NetworkError",
    "PCN",
    "PCNL",
    "PiecewiseLinear",
    "SGHMC",
    "SGLD",
    "SignLabel",
    "TeacherStudent",
    "__version__",
    "class_probabilities",
    "classical_mlp",
    "correlated_blocks",
    "function_space",
    "initial_values",
    "log_predictive",
    "mlp",
    "noisy_xor",
    "plot_acceptance",
    "plot_calibration",
    "plot_class_probabilities",
    "plot_coverage",
    "plot_log_density",
    "plot_predictive_band",
    "plot_rhat",
    "plot_thermalisation",
    "predict",
    "sample",
    "scoring",
    "stable_parameters",
    "teacher_student",
    "thermalisation",
    "wide_mlp",
]

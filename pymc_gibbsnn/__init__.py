"""Samplers for Bayesian neural networks, as PyMC step methods."""

from pymc_gibbsnn._version import __version__
from pymc_gibbsnn.activations import PiecewiseLinear
from pymc_gibbsnn.blocks import correlated_blocks
from pymc_gibbsnn.classical import classical_mlp
from pymc_gibbsnn.datasets import TeacherStudent, noisy_xor, teacher_student
from pymc_gibbsnn.function_space import function_space
from pymc_gibbsnn.gaussian_steps import MALA, PCN, PCNL
from pymc_gibbsnn.initial_values import initial_values
from pymc_gibbsnn.labels import ArgmaxLabel, SignLabel
from pymc_gibbsnn.metropolis_steps import FNBG
from pymc_gibbsnn.models import mlp
from pymc_gibbsnn.network import NetworkError
from pymc_gibbsnn.prediction import class_probabilities
from pymc_gibbsnn.sampling import sample
from pymc_gibbsnn.steps import GibbsNN
from pymc_gibbsnn.thermalisation import thermalisation
from pymc_gibbsnn.wide import wide_mlp

__all__ = [
    "ArgmaxLabel",
    "FNBG",
    "GibbsNN",
    "MALA",
    "NetworkError",
    "PCN",
    "PCNL",
    "PiecewiseLinear",
    "SignLabel",
    "TeacherStudent",
    "__version__",
    "class_probabilities",
    "classical_mlp",
    "correlated_blocks",
    "function_space",
    "initial_values",
    "mlp",
    "noisy_xor",
    "sample",
    "teacher_student",
    "thermalisation",
    "wide_mlp",
]

from ._version import __version__
from .diagnostics import scoring
from .diagnostics.summary import summary
from .diagnostics.thermalisation import thermalisation
from .drivers.continuation import continue_from
from .drivers.gaussian_steps import MALA, PCN, PCNL
from .drivers.gibbs_step import GibbsNN
from .drivers.metropolis_steps import FNBG
from .drivers.reading import open
from .drivers.sample import sample
from .drivers.stochastic_steps import ISGD, SGHMC, SGLD, ConstantSGD
from .estimators.classifier import NetworkClassifier
from .estimators.regressor import NetworkRegressor
from .models.classical import classical_mlp
from .models.cnn import cnn
from .models.datasets import noisy_xor
from .models.images import average_pool2d, conv2d
from .models.initial_values import initial_values
from .models.mlp import mlp
from .models.teachers import TeacherStudent, teacher_student
from .models.wide import wide_mlp
from .models.without_latents import without_latents
from .networks.activations import PiecewiseLinear
from .networks.forms import NetworkError
from .networks.likelihoods import ArgmaxLabel, SignLabel
from .networks.scales_of_rows import row_scale
from .plots import (
    plot_acceptance,
    plot_calibration,
    plot_class_probabilities,
    plot_coverage,
    plot_log_density,
    plot_partial_dependence,
    plot_ppc,
    plot_predictive_band,
    plot_relevance,
    plot_residuals,
    plot_rhat,
    plot_thermalisation,
)
from .prediction.function_space import function_space
from .prediction.log_predictive import log_predictive
from .prediction.predict import class_probabilities, predict
from .prediction.stacking import stacking_weights
from .samplers.alpha_stable import stable_parameters
from .samplers.blocks import correlated_blocks

__all__ = [
    "ArgmaxLabel",
    "ConstantSGD",
    "FNBG",
    "GibbsNN",
    "ISGD",
    "MALA",
    "NetworkClassifier",
    "NetworkError",
    "NetworkRegressor",
    "PCN",
    "PCNL",
    "PiecewiseLinear",
    "SGHMC",
    "SGLD",
    "SignLabel",
    "TeacherStudent",
    "__version__",
    "average_pool2d",
    "class_probabilities",
    "classical_mlp",
    "cnn",
    "continue_from",
    "conv2d",
    "correlated_blocks",
    "function_space",
    "initial_values",
    "log_predictive",
    "mlp",
    "noisy_xor",
    "open",
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
    "predict",
    "row_scale",
    "sample",
    "scoring",
    "stable_parameters",
    "stacking_weights",
    "summary",
    "teacher_student",
    "thermalisation",
    "wide_mlp",
    "without_latents",
]

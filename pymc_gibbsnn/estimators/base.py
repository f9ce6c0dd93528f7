"""What regression and classification by noisy networks share as estimators of scikit-learn.

Both write the model of :func:`pymc_gibbsnn.mlp` with ``standardise=True``, sample it with
:class:`pymc_gibbsnn.GibbsNN`, and answer from the draws by :func:`pymc_gibbsnn.predict` and
:func:`pymc_gibbsnn.log_predictive`.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pymc_gibbsnn._compat import dataset_of, inference_data
from pymc_gibbsnn._frames import with_indicators
from pymc_gibbsnn.diagnostics.summary import LEAST_DRAWS, Summary, summary
from pymc_gibbsnn.drivers.gibbs_step import GibbsNN
from pymc_gibbsnn.estimators.file import read_file, write_file
from pymc_gibbsnn.estimators.kept import kept_of, restore, stand_in_rows
from pymc_gibbsnn.models.mlp import mlp
from pymc_gibbsnn.models.without_latents import without_latents
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.prediction.log_predictive import log_predictive
from pymc_gibbsnn.prediction.predict import predict
from pymc_gibbsnn.prediction.summaries import means_and_draws_alone

__all__ = ["Hidden", "NetworkEstimator"]

Hidden = int | Sequence[int]
Choice = float | str | Sequence[float | str]


@dataclass(eq=False, repr=False)  # for an __init__ that names all settings, also those of a subclass
class NetworkEstimator(BaseEstimator):
    """Settings, fit and keeping. Subclasses say what targets are, and how predictions are returned."""

    hidden: Hidden = 50
    _: KW_ONLY
    activation: str | PiecewiseLinear | Callable = "relu"
    likelihood: str | None = None
    noise: Choice = "learned"
    prior: Choice | None = "relevance"
    draws: int = 1000
    tune: int = 1000
    chains: int = 4
    n_jobs: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False

    # How a fit is made

    def _fit(self, X: ArrayLike, y: np.ndarray) -> Self:
        """Sample the posterior of a network given checked inputs and targets."""
        self._rows = stand_in_rows(np.asarray(X, "float64"))
        with _quiet(self.verbose):
            self.model_ = self._model(X, y)
            self.seed_ = int(check_random_state(self.random_state).randint(2**31))
            with self.model_:
                self.idata_ = pm.sample(
                    self.draws,
                    tune=self.tune,
                    chains=self.chains,
                    cores=self._cores(),
                    step=GibbsNN(),
                    var_names=without_latents(),
                    random_seed=self.seed_,
                    progressbar=bool(self.verbose),
                    compute_convergence_checks=False,
                )
        names = list(self.model_.coords["feature"])
        self.features_ = [str(name) for name in names] if isinstance(names[0], str) else None
        self._warn_if_chains_disagree()
        return self

    def _warn_if_chains_disagree(self) -> None:
        """Warn as estimators of scikit-learn do whose fit has not converged."""
        if dataset_of(self.idata_, "posterior").sizes["draw"] < LEAST_DRAWS:
            return
        found = self.summary()
        if not found.chains_agree:
            warnings.warn(
                f"{found.verdict} (Tuning steps and draws are set by tune= and draws=; summary() has more numbers.)",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _model(self, X: ArrayLike, y: np.ndarray) -> pm.Model:
        """Write the model."""
        return mlp(
            X, y, self.hidden, activation=self.activation, noise=self.noise, prior=self.prior,
            likelihood=self.likelihood, noise_hidden=self._widths_of_noise(y), standardise=True,
        )  # fmt: skip

    def _widths_of_noise(self, y: np.ndarray) -> Hidden | None:
        """Return the widths of the network that learns how noisy each row is; None if there is none."""
        return None

    def _cores(self) -> int:
        """How many chains are sampled side by side, as scikit-learn counts: −1 for all cores."""
        if self.n_jobs is None:
            return 1
        cores = os.cpu_count() or 1
        return min(self.chains, self.n_jobs if self.n_jobs > 0 else max(cores + 1 + self.n_jobs, 1))

    def _inputs(self, X: ArrayLike, reset: bool) -> Any:
        """Check inputs, and return them as a frame where their columns have names that are texts.

        Parameters
        ----------
        X : array_like, (n, d)
            The inputs.
        reset : bool
            Whether they are those of a fit, of which names and number of columns are remembered.
        """
        features = None if reset else self.features_
        frame = with_indicators("X", X, features)
        if frame is X and not hasattr(X, "columns"):
            return validate_data(self, X, reset=reset, dtype="float64", ensure_all_finite="allow-nan")
        validate_data(self, X, reset=reset, skip_check_array=True)
        check_array(frame, dtype="float64", ensure_all_finite="allow-nan", estimator=self, input_name="X")
        return frame

    # What a fit tells

    def _predicted(self, X: ArrayLike, **kwargs) -> xr.Dataset:
        """Summarise the predictive distribution at new inputs, the same in each call."""
        check_is_fitted(self, "idata_")
        kwargs = {"random_seed": self.seed_} | kwargs
        with means_and_draws_alone():
            return predict(self.idata_, self.model_, self._inputs(X, reset=False), **kwargs)

    def log_score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Compute the mean log predictive density, or log probability, of targets.

        Parameters
        ----------
        X : array_like, shape (m, d)
            Inputs.
        y : array_like, shape (m,) or (m, k)
            What was observed there.

        Returns
        -------
        float
            In natural units of information (nats), the larger the better; with the opposite sign it is the negative
            log-likelihood of tables of benchmarks.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If nothing has been fitted.
        ValueError
            If the inputs or the targets do not fit those that were fitted.
        """
        check_is_fitted(self, "idata_")
        X = self._inputs(X, reset=False)
        found = log_predictive(self.idata_, self.model_, X, self._targets(y), random_seed=self.seed_)
        return float(found["log_density"].mean())

    def summary(self) -> Summary:
        """Say in a table, and in words, whether the chains agree: see :func:`pymc_gibbsnn.summary`.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If nothing has been fitted.
        """
        check_is_fitted(self, "idata_")
        return summary(self.idata_, self.model_)

    @property
    def partial_fit(self) -> Callable:
        """Draws of a posterior cannot be updated by further rows.

        Raises
        ------
        AttributeError
            Always.
        """
        raise AttributeError(
            f"{type(self).__name__} has no partial_fit: its draws are of the posterior given all rows. Call fit with "
            f"old and new rows together."
        )

    # How a fit is kept

    def save(self, path: str | os.PathLike) -> None:
        """Write the fit to one NetCDF file: settings and preprocessing as JSON, and the draws of the posterior.

        The file holds no code and, of the training data, only the means and deviations of columns, and the
        names of columns and classes.

        Parameters
        ----------
        path : str or path
            The file; one that is there is replaced.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If nothing has been fitted.
        ValueError
            If a setting is a function or a table, such as an activation of one's own, which no JSON can hold.
        """
        check_is_fitted(self, "idata_")
        settings = {"estimator": type(self).__name__, "parameters": self.get_params(deep=False)} | kept_of(self)
        write_file(path, settings, dataset_of(self.idata_, "posterior"))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Read a fit that :meth:`save` wrote. No training data are needed, and no code of the file is run.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        FileNotFoundError
            If there is none.
        ValueError
            If it is no such file, or that of another estimator.
        """
        settings, posterior = read_file(path)
        if settings.pop("estimator", None) != cls.__name__:
            raise ValueError(f"{path} holds no fit of {cls.__name__}: it was not written by its save().")
        estimator = cls(**settings.pop("parameters"))
        restore(estimator, settings)
        estimator.idata_ = inference_data({"posterior": posterior})
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the model, which is written anew from what is kept of the data."""
        state = dict(super().__getstate__())
        if state.pop("model_", None) is not None:
            state["kept"] = kept_of(self)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the model anew."""
        kept = state.pop("kept", None)
        super().__setstate__(state)
        if kept is not None:
            restore(self, kept)

    def __sklearn_tags__(self):
        """Say that inputs may be missing, and that the prediction of a row depends a little on the rows beside it.

        Predictions are averages over noise, which is drawn for all rows together. For the same rows they are the same.
        """
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        return tags


@contextmanager
def _quiet(verbose: bool) -> Iterator[None]:
    """Keep PyMC from telling of each fit, if that is not asked for."""
    logger = logging.getLogger("pymc")
    level = logger.level
    try:
        if not verbose:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        logger.setLevel(level)

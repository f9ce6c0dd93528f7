"""Noisy networks as estimators of scikit-learn: a regressor and a classifier.

Both write the model of :func:`pymc_gibbsnn.mlp` with ``standardise=True``, sample it with
:class:`pymc_gibbsnn.GibbsNN`, and answer from the draws by :func:`pymc_gibbsnn.predict` and
:func:`pymc_gibbsnn.log_predictive`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike

from pymc_gibbsnn._compat import dataset_of, inference_data
from pymc_gibbsnn._frames import with_indicators
from pymc_gibbsnn.diagnostics.summary import Summary, summary
from pymc_gibbsnn.drivers.gibbs_step import GibbsNN
from pymc_gibbsnn.estimators.file import read_file, write_file
from pymc_gibbsnn.models.mlp import mlp
from pymc_gibbsnn.models.without_latents import without_latents
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.prediction.log_predictive import log_predictive
from pymc_gibbsnn.prediction.predict import predict
from pymc_gibbsnn.prediction.provenance import SCALES
from pymc_gibbsnn.prediction.summaries import means_and_draws_alone

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError(
        "pymc_gibbsnn.NetworkRegressor and NetworkClassifier need scikit-learn 1.6 or later: "
        "pip install 'pymc-gibbsnn[sklearn]'."
    ) from error

__all__ = ["NetworkClassifier", "NetworkRegressor"]

Hidden = int | Sequence[int]
Choice = float | str | Sequence[float | str]


class _NetworkEstimator(BaseEstimator):
    """What regressor and classifier share. Subclasses say what targets are, and how predictions are returned."""

    # How a fit is made

    def _fit(self, X: ArrayLike, y: np.ndarray) -> Self:
        """Sample the posterior of a network given checked inputs and targets."""
        numbers = np.asarray(X, "float64")
        mean, sd = np.nanmean(numbers, axis=0), np.nanstd(numbers, axis=0)
        self._rows = [(mean - sd).tolist(), (mean + sd).tolist()]  # stand-ins for the data, with their means and scales
        if np.isnan(numbers).any():
            self._rows.append([None] * numbers.shape[1])
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
        return self

    def _model(self, X: ArrayLike, y: np.ndarray) -> pm.Model:
        """Write the model."""
        return mlp(
            X, y, self.hidden, activation=self.activation, noise=self.noise, prior=self.prior,
            likelihood=self.likelihood, noise_hidden=getattr(self, "noise_hidden", None), standardise=True,
        )  # fmt: skip

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
        write_file(path, {"estimator": type(self).__name__} | self._settings(), dataset_of(self.idata_, "posterior"))

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
        estimator._restore(settings)
        estimator.idata_ = inference_data({"posterior": posterior})
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the model, which is written anew from what is kept of the data."""
        state = dict(super().__getstate__())
        if "model_" in state:
            del state["model_"]
            state["_settings"] = {k: v for k, v in self._settings().items() if k != "parameters"}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the model anew."""
        settings = state.pop("_settings", None)
        super().__setstate__(state)
        if settings is not None:
            self._restore(settings)

    def _settings(self) -> dict[str, Any]:
        """Return all but the draws, as JSON holds it."""
        return {
            "parameters": self.get_params(deep=False),
            "seed": self.seed_,
            "inputs": self.n_features_in_,
            "names": None if (names := getattr(self, "feature_names_in_", None)) is None else names.tolist(),
            "features": self.features_,
            "rows": self._rows,
            "targets": self._stand_ins(self.model_["y_data"].get_value()).tolist(),
            "data": {x: self.model_[x].get_value().tolist() for x in SCALES if x in self.model_.named_vars},
        } | self._of_targets()

    def _restore(self, settings: dict[str, Any]) -> None:
        """Write the model that the settings describe, with stand-ins for the rows of data."""
        self.seed_, self.n_features_in_, self.features_ = (settings[x] for x in ("seed", "inputs", "features"))
        if settings["names"] is not None:
            self.feature_names_in_ = np.array(settings["names"], dtype=object)
        y = np.asarray(settings["targets"])
        self._rows = settings["rows"]
        X = np.array(self._rows, dtype="float64")  # None becomes NaN
        rows = [0, 1] * ((len(y) + 1) // 2) + [2, 2] * (len(X) - 2)  # each target as often as any other
        X, y = X[rows], y[np.arange(len(rows)) % len(y)]
        self._set_targets(settings)
        if self.features_ is not None:
            X = pd.DataFrame(X, columns=self.features_)
        self.model_ = self._model(X, y)
        for name, x in settings["data"].items():
            self.model_[name].set_value(np.asarray(x, self.model_[name].dtype))

    def __sklearn_tags__(self):
        """Say that predictions average over drawn noise, and that inputs may be missing."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        return tags


class NetworkRegressor(RegressorMixin, _NetworkEstimator):
    """Regression by a noisy Bayesian neural network, sampled by :class:`pymc_gibbsnn.GibbsNN`.

    The model is that of :func:`pymc_gibbsnn.mlp` with ``standardise=True``, so that neither inputs nor targets need
    scaling, and predictions have the units of the targets. A data frame may hold columns of texts or categories.

    Parameters
    ----------
    hidden : int or sequence of int
        Widths of the hidden layers.
    activation : str, PiecewiseLinear or callable
        As for :func:`mlp`.
    likelihood : str, optional
        What y is given the last layer: "student" (the default), "normal", "laplace", "mixture", "lognormal", "gamma",
        "beta", "poisson" or "negative_binomial", as for :func:`mlp`.
    noise, prior : float, str or sequence, optional
        As for :func:`mlp`.
    noise_hidden : int or sequence of int, optional
        Widths of the network of the noise, where noise differs between rows, as for :func:`mlp`.
    draws, tune, chains : int
        How many draws each chain records, how many it makes before while it tunes, and how many chains there are.
    n_jobs : int, optional
        How many chains are sampled side by side; None for one after the other, −1 for as many as there are cores.
    random_state : int, RandomState instance or None
        The seed.
    verbose : bool
        Whether the progress of sampling is shown.

    Attributes
    ----------
    idata_ : InferenceData or DataTree
        The draws of the posterior.
    model_ : pm.Model
        The model.
    features_ : list of str or None
        The names of the columns that the network sees, if they have names, with indicator columns of categories.
    n_features_in_ : int
        The number of columns of X.
    feature_names_in_ : array of str
        Their names, where X had some.
    seed_ : int
        The seed of the draws.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from pymc_gibbsnn import NetworkRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> network = NetworkRegressor(hidden=10, random_state=0).fit(X, y)  # doctest: +SKIP
    >>> mean, sd = network.predict(X.head(), return_std=True)  # doctest: +SKIP
    """

    def __init__(
        self,
        hidden: Hidden = 50,
        *,
        activation: str | PiecewiseLinear | Callable = "relu",
        likelihood: str | None = None,
        noise: Choice = "learned",
        prior: Choice | None = "relevance",
        noise_hidden: Hidden | None = None,
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ):
        self.hidden = hidden
        self.activation = activation
        self.likelihood = likelihood
        self.noise = noise
        self.prior = prior
        self.noise_hidden = noise_hidden
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Draw from the posterior of the network given data.

        Parameters
        ----------
        X : array_like or data frame, shape (n, d)
            Inputs in any units; columns of texts and categories become indicator columns, and missing numbers are drawn
            with the network.
        y : array_like, shape (n,) or (n, k)
            Targets in any units.

        Returns
        -------
        NetworkRegressor
            Itself.

        Raises
        ------
        ValueError
            If data are infinite, targets are missing, or shapes do not fit.
        """
        X = self._inputs(X, reset=True)
        y = self._targets(y)
        check_consistent_length(X, y)
        return self._fit(X, y)

    def predict(self, X: ArrayLike, return_std: bool = False, quantiles: Sequence[float] | None = None):
        """Predict the mean of y at new inputs and, if asked for, its standard deviation or quantiles.

        Parameters
        ----------
        X : array_like or data frame, shape (m, d)
            New inputs.
        return_std : bool
            Whether to return the standard deviation of the predictive distribution, too.
        quantiles : sequence of float, optional
            Probabilities of quantiles of the predictive distribution, to be returned in place of the mean.

        Returns
        -------
        mean : array, shape (m,) or (m, k)
        sd : array, of that shape
            If ``return_std``.
        quantiles : array, shape (m, q) or (m, k, q)
            In place of both, if ``quantiles`` are given.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If nothing has been fitted.
        ValueError
            If the columns of X are not those that were fitted, a category is not known, a quantile is no probability,
            or both ``return_std`` and ``quantiles`` are given.
        """
        if quantiles is not None:
            if return_std:
                raise ValueError("return_std=True and quantiles= exclude each other: ask for them one by one.")
            return np.moveaxis(self._predicted(X, quantiles=quantiles)["quantiles"].values, 0, -1)
        found = self._predicted(X)
        return (found["mean"].values, found["sd"].values) if return_std else found["mean"].values

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> np.ndarray:
        """Return central predictive intervals.

        Parameters
        ----------
        X : array_like or data frame, shape (m, d)
            New inputs.
        level : float
            The probability that y lies between the bounds.

        Returns
        -------
        array, shape (m, 2) or (m, k, 2)
            Lower and upper bounds.

        Raises
        ------
        ValueError
            As :meth:`predict`, and if ``level`` is no number between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must be a number between 0 and 1; found {level!r}.")
        return self.predict(X, quantiles=((1 - level) / 2, (1 + level) / 2))

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> np.ndarray:
        """Draw y from the predictive distribution at new inputs, one for each of so many draws of the posterior.

        Parameters
        ----------
        X : array_like or data frame, shape (m, d)
            New inputs.
        n_samples : int
            How many draws.
        random_state : int, RandomState instance or None
            The seed.

        Returns
        -------
        array, shape (m, n_samples) or (m, k, n_samples)

        Raises
        ------
        ValueError
            As :meth:`predict`, and if there are fewer draws of the posterior.
        """
        generator = check_random_state(random_state)
        found = self._predicted(X, samples=True, random_seed=int(generator.randint(2**31)))["samples"].values
        found = found.reshape(-1, *found.shape[2:])
        if n_samples > len(found):
            raise ValueError(f"n_samples must be at most the {len(found)} draws of the posterior; found {n_samples}.")
        return np.moveaxis(found[generator.choice(len(found), n_samples, replace=False)], 0, -1)

    def _targets(self, y: ArrayLike) -> np.ndarray:
        """Check real targets."""
        y = check_array(y, dtype="float64", ensure_2d=False, estimator=self, input_name="y")
        return column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y

    def _stand_ins(self, y: np.ndarray) -> np.ndarray:
        """Return targets in two rows, from which priors in units of the data follow as from all."""
        if self.likelihood in ("poisson", "negative_binomial"):
            return np.stack([np.floor(y.mean(axis=0)), np.ceil(y.mean(axis=0))])
        is_log = self.likelihood == "lognormal"
        z = np.log(y) if is_log else y
        center = z.mean(axis=0)
        around = np.sqrt(((z - center) ** 2).mean()) if self.likelihood not in ("gamma", "beta") else 0.0
        both = np.stack([center - around, center + around])
        return np.exp(both) if is_log else both

    def _of_targets(self) -> dict[str, Any]:
        """Return what else there is to keep of the targets."""
        return {}

    def _set_targets(self, settings: dict[str, Any]) -> None:
        """Take that back."""

    def __sklearn_tags__(self):
        """Say that there may be several targets."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class NetworkClassifier(ClassifierMixin, _NetworkEstimator):
    """Classification by a noisy Bayesian neural network, sampled by :class:`pymc_gibbsnn.GibbsNN`.

    The model is that of :func:`pymc_gibbsnn.mlp` with ``standardise=True``, so that inputs need no scaling. A data
    frame may hold columns of texts or categories.

    Parameters
    ----------
    hidden : int or sequence of int
        Widths of the hidden layers.
    activation : str, PiecewiseLinear or callable
        As for :func:`mlp`.
    likelihood : {"probit", "bernoulli", "categorical"}
        What labels are given the last layer, as for :func:`mlp`.
    noise, prior : float, str or sequence, optional
        As for :func:`mlp`.
    draws, tune, chains, n_jobs, random_state, verbose
        As for :class:`NetworkRegressor`.

    Attributes
    ----------
    classes_ : array, shape (k,)
        The classes.
    idata_, model_, features_, n_features_in_, feature_names_in_, seed_
        As for :class:`NetworkRegressor`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from pymc_gibbsnn import NetworkClassifier
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> network = NetworkClassifier(hidden=10, random_state=0).fit(X, y)  # doctest: +SKIP
    >>> network.predict_proba(X.head())  # doctest: +SKIP
    """

    def __init__(
        self,
        hidden: Hidden = 50,
        *,
        activation: str | PiecewiseLinear | Callable = "relu",
        likelihood: str = "probit",
        noise: Choice = "learned",
        prior: Choice | None = "relevance",
        draws: int = 1000,
        tune: int = 1000,
        chains: int = 4,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ):
        self.hidden = hidden
        self.activation = activation
        self.likelihood = likelihood
        self.noise = noise
        self.prior = prior
        self.draws = draws
        self.tune = tune
        self.chains = chains
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Draw from the posterior of the network given labelled data.

        Parameters
        ----------
        X : array_like or data frame, shape (n, d)
            Inputs in any units; columns of texts and categories become indicator columns, and missing numbers are drawn
            with the network.
        y : array_like, shape (n,)
            Labels of two classes or more, of any kind.

        Returns
        -------
        NetworkClassifier
            Itself.

        Raises
        ------
        ValueError
            If inputs are infinite, shapes do not fit, or there is only one class.
        """
        X = self._inputs(X, reset=True)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold labels of two classes or more: a classifier cannot be fitted to one class, "
                f"{self.classes_[0]!r}."
            )
        return self._fit(X, self._targets(y))

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the predictive probabilities of classes.

        Parameters
        ----------
        X : array_like or data frame, shape (m, d)
            New inputs.

        Returns
        -------
        array, shape (m, k)
            In the order of ``classes_``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If nothing has been fitted.
        ValueError
            If the columns of X are not those that were fitted, or a category is not known.
        """
        return self._predicted(X)["probability"].values

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable classes.

        Parameters
        ----------
        X : array_like or data frame, shape (m, d)
            New inputs.

        Returns
        -------
        array, shape (m,)

        Raises
        ------
        ValueError
            As :meth:`predict_proba`.
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _targets(self, y: ArrayLike) -> np.ndarray:
        """Number labels by their classes."""
        y = column_or_1d(y)
        if unknown := set(np.unique(y).tolist()) - set(self.classes_.tolist()):
            raise ValueError(f"y must hold labels of the classes {self.classes_}; found {sorted(unknown)[0]!r}.")
        return np.searchsorted(self.classes_, y)

    def _stand_ins(self, y: np.ndarray) -> np.ndarray:
        """Return a label of each class."""
        return np.arange(len(self.classes_))

    def _of_targets(self) -> dict[str, Any]:
        """Keep the classes."""
        return {"classes": self.classes_.tolist(), "kind": self.classes_.dtype.str}

    def _set_targets(self, settings: dict[str, Any]) -> None:
        """Take the classes back."""
        self.classes_ = np.array(settings["classes"], dtype=settings["kind"])


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

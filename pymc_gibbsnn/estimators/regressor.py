"""Regression by a noisy network, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_consistent_length, column_or_1d

from pymc_gibbsnn.estimators.base import Hidden, NetworkEstimator
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.named_activations import named_activation

__all__ = ["NetworkRegressor"]


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkRegressor(RegressorMixin, NetworkEstimator):
    """Regression by a noisy Bayesian neural network, sampled by :class:`pymc_gibbsnn.GibbsNN`.

    The model is that of :func:`pymc_gibbsnn.mlp` with ``standardise=True``, so that neither inputs nor targets need
    scaling, and predictions have the units of the targets. A data frame may hold columns of texts or categories. If the
    chains of a fit disagree (:func:`pymc_gibbsnn.summary`), it warns by scikit-learn's ``ConvergenceWarning``.

    Parameters
    ----------
    hidden : int or sequence of int
        Widths of the hidden layers, by default 50.
    activation : str, PiecewiseLinear or callable
        As for :func:`mlp`, by default "relu".
    likelihood : str, optional
        The distribution of y given the output of the last layer: "student", "normal", "laplace", "mixture",
        "lognormal", "gamma", "beta", "poisson" or "negative_binomial", as for :func:`mlp`. The default is "normal" if
        there is a ``noise_hidden`` or the noise of y is fixed, and else "student".
    noise, prior : float, str or sequence, optional
        As for :func:`mlp`, by default "learned" and "relevance". The standard deviation of the noise of y has the units
        of y, that of hidden units those of standardised numbers.
    noise_hidden : "auto", int, sequence of int or None
        Widths of a second network, which learns how noisy each row is, as for :func:`mlp`; None gives all rows the same
        noise variance. "auto" is 10 if y has one number a row, its noise is learned, no likelihood is named, and the
        activation is one with which :func:`mlp` takes ``noise_hidden``, such as relu; else it is None. Naming a
        likelihood, even "normal", so turns it off: give a width as well to keep it. For targets that take few values,
        such as grades, None gives wider intervals, whose coverage is closer to their level.
    draws, tune, chains : int
        How many draws each chain records and how many tuning steps it makes before, by default 1,000 each, and how many
        chains there are, by default 4.
    n_jobs : int, optional
        How many chains are sampled in parallel; None runs them one after the other, −1 uses as many as there are cores.
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

    noise_hidden: Hidden | str | None = "auto"

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

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If the chains disagree, as :func:`pymc_gibbsnn.summary` judges them.
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

    def _widths_of_noise(self, y: np.ndarray) -> Hidden | None:
        """Return what ``noise_hidden`` says, or what it is for these targets where it is "auto"."""
        if not isinstance(self.noise_hidden, str) or self.noise_hidden != "auto":
            return self.noise_hidden
        noise = self.noise
        if isinstance(noise, Sequence) and noise and not isinstance(noise, str):
            noise = noise[-1]  # that of y
        function = named_activation(self.activation)
        is_homogeneous = isinstance(function, PiecewiseLinear) and function.is_homogeneous
        return 10 if self.likelihood is None and noise == "learned" and y.ndim == 1 and is_homogeneous else None

    def _targets(self, y: ArrayLike) -> np.ndarray:
        """Check real targets."""
        if y is None:
            raise ValueError(
                "NetworkRegressor requires y to be passed, but the target y is None: give a number for each row."
            )
        y = check_array(y, dtype="float64", ensure_2d=False, estimator=self, input_name="y")
        return column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y

    def __sklearn_tags__(self):
        """Say that there may be several targets."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

"""Classification by a noisy network, with the interface of scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from pymc_gibbsnn.estimators.base import NetworkEstimator

__all__ = ["NetworkClassifier"]


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkClassifier(ClassifierMixin, NetworkEstimator):
    """Classification by a noisy Bayesian neural network, sampled by :class:`pymc_gibbsnn.GibbsNN`.

    The model is that of :func:`pymc_gibbsnn.mlp` with ``standardise=True``, so that inputs need no scaling. A data
    frame may hold columns of texts or categories. If the chains of a fit disagree (:func:`pymc_gibbsnn.summary`), it
    warns by scikit-learn's ``ConvergenceWarning``.

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

    likelihood: str = "probit"

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

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning
            If the chains disagree, as :func:`pymc_gibbsnn.summary` judges them.
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
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]

    def _targets(self, y: ArrayLike) -> np.ndarray:
        """Number labels by their classes."""
        y = column_or_1d(y)
        if unknown := set(np.unique(y).tolist()) - set(self.classes_.tolist()):
            raise ValueError(f"y must hold labels of the classes {self.classes_}; found {sorted(unknown)[0]!r}.")
        return np.searchsorted(self.classes_, y)

"""Noisy networks, with Gaussian noise on every pre- and post-activation, as plain PyMC models in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_gibbsnn._arguments import boolean, each, one_of, widths
from pymc_gibbsnn._data import check_labels, column_names, finite, warn_of_size
from pymc_gibbsnn._frames import with_indicators
from pymc_gibbsnn.models.missing_inputs import check_columns_with_holes, inputs_with_holes
from pymc_gibbsnn.models.noisy_layers import (
    data_arguments,
    dense_layers,
    deviations_of,
    latent_deviations,
    likelihood_of,
    read_targets,
    scales_of_rows,
    standardised,
    units_of_columns,
)
from pymc_gibbsnn.networks.activations import PiecewiseLinear
from pymc_gibbsnn.networks.likelihoods import LatentLikelihood
from pymc_gibbsnn.networks.named_activations import named_activation

__all__ = ["mlp"]


def mlp(
    X: ArrayLike,
    y: ArrayLike,
    hidden: int | Sequence[int],
    *,
    activation: str | PiecewiseLinear | Callable = "relu",
    noise: float | str | Sequence[float | str] = "learned",
    prior: float | str | Sequence[float | str] | None = "relevance",
    likelihood: str | None = None,
    bias: bool = True,
    standardise: bool = False,
    noise_hidden: int | Sequence[int] | None = None,
    trials: int | ArrayLike | None = None,
    exposure: float | ArrayLike | None = None,
    lower: float | ArrayLike | None = None,
    upper: float | ArrayLike | None = None,
    missing: str = "model",
) -> pm.Model:
    r"""Write the model of a multilayer perceptron with Gaussian noise on every pre- and post-activation.

    .. math::

        Z_{l+1} \sim \mathrm{Normal}(A_l W_l^\top + b_l, s), \quad
        A_{l+1} \sim \mathrm{Normal}(\sigma(Z_{l+1}), s), \quad
        W_l, b_l \sim \mathrm{Normal}(0, \lambda_l^{-1/2}),

    where the second argument of Normal is a standard deviation, and A_1 = X. By default s and λ_l are learned, and the
    last Z is a latent around which y has the heavy tails of Student's t distribution. In [1]_ (eq. 7) the last Z is
    observed as y, s is fixed, and λ_l is the number of inputs of layer l, as with ``noise=0.1, prior=None``. For a
    probit likelihood the last Z is a latent, whose argmax or sign is the label y (appendix E); for an ordered one, y
    says between which learned cutpoints Z + N(0, 1) lies.
    The latents Z_l and A_l, the noisy pre- and post-activations, are variables of the model like the weights, so that
    each has a closed-form conditional for :class:`GibbsNN`. The model is plain PyMC: it holds nothing that could not be
    written by hand.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Inputs of n samples. They become the data variable "X", unless values are missing (NaN or masked); the names of
        the columns of a data frame become the coordinate "feature". Columns of texts or categories become indicator
        columns, such as "city=Oslo", which are 1 where the city is Oslo and 0 elsewhere; where such values are missing,
        "city=missing" says so. The priors are made for standardised numbers: standardise them, or leave that to
        ``standardise=True``.
    y : array_like, shape (n,) or (n, k)
        What is observed; it becomes the data variable "y_data". These are finite targets of one or of k outputs, with
        integers taken as real numbers; for class labels of shape (n,) they are integers from 0 up, without a gap, or
        names, which are numbered in alphabetical order, or a pandas categorical.
        For an ordered likelihood they are grades: integers likewise, or a pandas categorical, from the lowest up.
        The classes become the coordinate "class", intervals and dates as texts. The names of the columns of a data
        frame (n, k) become the coordinate "output".
    hidden : int or sequence of int
        Widths of the hidden layers; an empty sequence gives linear regression.
    activation : str, PiecewiseLinear or callable
        A name ("identity", "relu", "leaky_relu", "abs", "sign", "hard_tanh", "relu6"; "tanh", "sigmoid", "gelu",
        "softplus", "silu", "erf"), a table, or an elementwise function of PyTensor variables.
    noise : "learned", float, or a sequence of them
        Standard deviation s of the noise: one for all, or one for each of Z2, A2, Z3, ... up to y or, where
        y has no normal noise of its own, the last Z. That of y is in the units of y; for real numbers around a last Z
        it is also that of this Z.
        Where it is "learned", as by default, the variance is a variable of the model, such as "variance_Z2". That of y
        or, where y has none, of the last Z has the prior InverseGamma(1, 0.001), which allows anything from about 1e-4
        up, for y of unit variance; that of any other latent has InverseGamma(5, 0.0001), which favours little noise,
        about 2e-5. For probit, bernoulli, categorical and ordered likelihoods ``noise="learned"`` leaves that of the
        last Z at 1, since labels hardly tell it from the size of the last weights.
    prior : "relevance", "learned", float, or a sequence of them, optional
        Precision λ (one over the variance) of the prior of a layer's weights and biases: one for all layers, or one for
        each. Where it is "learned", the precision of the layer's weights is a variable of the model, such as
        "precision_W1", with the prior Gamma(2, 2/d) of mean d, the number of inputs; where it is "relevance", there is
        one for each input of the layer, which tells those that matter from those that do not (automatic relevance
        determination [2]_). ``prior="relevance"``, the default, is that for the first layer, and "learned" for the
        others. The biases of such layers have the prior Normal(0, 1). Below class labels the last layer is three times
        as wide: Gamma(2, 18/d), of mean d/9, and Normal(0, 3). None makes λ the number of the layer's inputs.
    likelihood : str, optional
        What y is given the last layer.

        - Real numbers: "student", whose noise has heavy tails, so that outliers pull less, y ~ StudentT(4, Z, s) around
          a last latent Z whose Gaussian noise has the same s; "normal", the noisy outputs themselves; "laplace",
          y ~ Laplace(Z, s), whose median is Z; "mixture", whose distribution around Z may have several modes, a mixture
          of three normal distributions with learned weights, centers and scales.
        - Positive numbers: "lognormal", log y ~ N(Z, s); "gamma", numbers with the mean exp Z and the learned shape
          "alpha_y". Numbers between 0 and 1: "beta", with the mean sigmoid Z and the learned sample size "nu_y".
        - Class labels: "bernoulli", two classes of which Z is the logit; "categorical", classes whose logits are the
          row of Z; "probit", the class label that Z gives by its sign or its largest number.
        - Ordered grades: "ordered", by pm.OrderedProbit with scale 1, whose K cutpoints "cutpoints_y" are normal a
          priori, in rising order, with standard deviation 2 around those that would make all grades equally probable
          if Z were N(0, 1).
        - Counts: "poisson", with the mean ``exposure`` times exp Z, and "negative_binomial", which spread more, by the
          learned dispersion "alpha_y"; "binomial", numbers of successes among ``trials``, of which Z is the logit.

        :mod:`pymc_gibbsnn.networks.likelihoods.families` gives the priors of what is learned. The default is "student"
        where the noise of y is learned, since one outlier among Gaussian errors could set the noise of all rows; where
        that noise is given, or ``noise_hidden``, ``lower`` or ``upper`` is, the default is "normal".
    bias : bool
        Whether the layers have biases.
    standardise : bool
        Whether the network sees each column of X less its mean, divided by its standard deviation; indicator columns
        are left as they are. The data variables "X" and "y_data" keep their units, and so do predictions; new rows need
        no scaling. Means and deviations are the data variables "X_mean" and "X_scale". For real numbers y the mean of
        y, the data variable "y_mean", is added to the output, and the priors of the last weights, of the last bias and
        of the noise that is learned next to y are those that standardised y would have; of several outputs each has its
        mean, and all have one scale. For "lognormal" this holds for log y. For "poisson", "negative_binomial" and
        "gamma" the logarithm of the mean is added to the output.
    noise_hidden : int or sequence of int, optional
        Makes the noise heteroscedastic: widths of the hidden layers of a second noisy network, which learns from the
        inputs how noisy each row is. By default there is none, and all rows have the same noise. Its output G is a
        number for each row, and all noise of a row of the first network has the standard deviation c s in place of s,
        with c = row_scale(G, floor=0.1, span=10), whose square is nearly 0.1 + exp(G) where G is below −1. So the noise
        of one row is at most about ten times as large as that of another. One G serves all outputs of a row. An empty
        sequence makes G linear in the inputs. The variables of the second network are named like those of the first
        with "_noise" appended; G is its last pre-activation, "Z3_noise" with one hidden layer. The second network has
        the same activation. Its hidden layers have biases, whatever ``bias`` says; its last layer has none, since the
        noise of y sets the level, which should therefore be "learned". Its own noise and precisions are learned
        whatever ``noise`` and ``prior`` say: the variance of the noise of G has the prior InverseGamma(3, 0.3), and all
        else the priors of ``noise="learned"`` and ``prior="relevance"``. The activation must be "relu", "leaky_relu",
        "abs", "identity" or another table for which σ(c z) = c σ(z) for every c > 0. The likelihood is "normal", the
        default here, "student" or "laplace".
    trials : int or array_like, shape of y, optional
        For a binomial likelihood the number of trials, of which y are successes: one for all data, or one for each,
        which becomes the data variable "trials"; by default 1.
    exposure : float or array_like, shape of y, optional
        For counts how long or how much was counted, likewise; by default 1.
    lower, upper : float or array_like, shape of y, optional
        Where normal data are censored: y that are equal to a bound, such as a detection limit, say only that the
        number itself lies there or beyond. The model is pm.Censored around a last latent Z with noise of the same s.
    missing : {"model", "refuse"}
        What to do where X has missing values. "model" makes them variables of the model, which :class:`GibbsNN` draws
        with the network. Rows of X are then draws from a mixture of 30 components, and have q = 4 factors, or d − 1
        where X has d ≤ 4 columns, so that what is known of a row tells of what is missing: c_i ~ Categorical(π),
        "component_X", f_ia ~ Normal(0, 1), "factors_X", and x_ij ~ Normal(μ_kj + Σ_a V_ja f_ia, τ_kj) with k = c_i. The
        weights "weights_X", π ~ Dirichlet(1), the means "mean_X", μ_kj ~ Normal(0, 1), the loadings "loadings_X",
        V_ja ~ Normal(0, q^{-1/2}), and the variances "variance_X", τ_kj² ~ InverseGamma(2, 0.02), are learned, in the
        units of standardised inputs where ``standardise`` is true. "X" is then no data variable, and :func:`predict`
        takes new rows that lack values, too. "refuse" raises an error.

    Returns
    -------
    pm.Model
        A model with the free variables W1, b1, Z2, A2, W2, b2, ... up to the last Z where it is a latent, the learned
        variances and precisions, and the observed variable y, and with the dimensions "row", "feature", "hidden_2",
        ..., "output" or "class". Each W has shape (units, inputs); for a single output of shape (n,) the last weights
        are a vector and the last bias is a number.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for.
    ValueError
        If data are not finite, the rows of X and y have other labels in pandas, their shapes or the widths do
        not fit, class labels do not count from 0 without a gap or are of one class only, a noise or a precision is not
        positive, the noise of the last Z is "learned" by itself with a probit likelihood, ``noise_hidden`` does not go
        with the likelihood or the activation, a column of X holds no value at all, or ``activation`` or another choice
        is none of those above.

    Warns
    -----
    UserWarning
        If the mean absolute value of a column of X, or of y, is above 30, far from that of standardised data; with
        priors of your own for such data you may ignore this.

    References
    ----------
    .. [1] G. Piccioli, E. Troiani, L. Zdeborová. Gibbs sampling the posterior of neural networks. arXiv 2306.02729.
    .. [2] R. M. Neal. Bayesian Learning for Neural Networks. Springer, 1996.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_gibbsnn as pmg
    >>> model = pmg.mlp(np.random.normal(size=(20, 3)), np.arange(20.0), hidden=5, noise=0.1, prior=None)
    >>> [rv.name for rv in model.free_RVs]
    ['W1', 'b1', 'Z2', 'A2', 'W2', 'b2']
    """
    raw, X_names = X, with_indicators("X", X)
    frames, standardise = (X_names, y), boolean("standardise", standardise)
    check_labels("y", y, "X", X)
    one_of("missing", missing, ("model", "refuse"))
    X = finite("X", X_names, may_be_missing=missing == "model")
    kind, y, out, coords = read_targets(y, likelihood)
    if X.ndim != 2 or y.ndim not in (1, 2) or len(X) != len(y) or 0 in X.shape + y.shape:
        raise ValueError(
            f"X must have shape (n, d) and y (n,) or (n, k), none of them empty; found {X.shape} and {y.shape}."
        )
    names, has_holes = column_names(frames[0], X.shape[1]), bool(np.isnan(X).any())
    is_number = [X_names is raw or str(name) in map(str, raw.columns) for name in names]
    check_columns_with_holes(X, names)
    if not standardise:
        warn_of_size("X", np.where(np.isnan(X), np.nanmean(X, axis=0), X), frames[0])
        if not kind.is_discrete:
            warn_of_size("y", y, frames[1])
    given = {"trials": trials, "exposure": exposure, "lower": lower, "upper": upper}
    kind, of_data = data_arguments(kind, likelihood, y, given)
    hidden = widths("hidden", hidden)
    function = named_activation(activation)
    noisy = [f"{kind}{l}" for l in range(2, len(hidden) + 2) for kind in "ZA"]
    noisy.append("y" if kind.has_noise else f"Z{len(hidden) + 2}")
    noises = deviations_of(noise, noisy, kind)
    likelihood = likelihood_of(likelihood, noises[-1], by_row=noise_hidden is not None)
    sizes = [X.shape[1], *hidden]
    weights = [f"W{l}" for l in range(1, len(sizes) + 1)]
    if isinstance(prior, str) and prior == "relevance":
        prior = ["relevance"] + ["learned"] * len(hidden)
    priors = each("prior", sizes if prior is None else prior, weights, ["learned", "relevance"], "a precision")
    bias = boolean("bias", bias)
    dims = ["feature", *(f"hidden_{l}" for l in range(2, len(sizes) + 1))]
    coords |= {dim: np.arange(size) for dim, size in zip(dims, sizes, strict=True)}
    coords["feature"] = names
    if noise_hidden is not None:
        noise_sizes = [X.shape[1], *_noise_widths(noise_hidden, function, kind, likelihood)]
        noise_dims = ["feature", *(f"hidden_{l}_noise" for l in range(2, len(noise_sizes) + 1))]
        coords |= {dim: np.arange(size) for dim, size in zip(noise_dims[1:], noise_sizes[1:], strict=True)}

    latent = None if likelihood == "normal" and not of_data else kind
    with pm.Model(coords=coords) as model:
        if not has_holes:
            a = pm.Data("X", X, dims=("row", "feature"))
        targets = pm.Data("y_data", y, dims=("row", "output")[: y.ndim])
        units: tuple[np.ndarray | float, float] | None = None
        center, scale = units_of_columns(X, is_number) if standardise else (np.zeros(X.shape[1]), np.ones(X.shape[1]))
        if has_holes:
            a = inputs_with_holes(X, center, scale)  # whose rows are those of "y_data"
        if standardise:
            a = standardised(a, center, scale)
            if not (kind.ignores_scale or kind.sets_unit):
                units = kind.units(y, of_data)
        deviations = latent_deviations(noisy, noises, 1.0 if units is None else units[1])
        row_scale = None
        if noise_hidden is not None:
            row_scale = scales_of_rows(a, noise_sizes, noise_dims, function)
        rest = {"row_scale": row_scale, "of_data": of_data, "units": units}
        dense_layers(a, sizes, dims, priors, deviations, function, bias, targets, out, latent, **rest)
    return model


def _noise_widths(
    widths_: int | Sequence[int], function: Callable, kind: type[LatentLikelihood], likelihood: str
) -> list[int]:
    """Check the widths of the network of the noise, and that the other one can have heteroscedastic noise.

    Parameters
    ----------
    widths_ : int or sequence of int
        The widths.
    function : callable
        The activation.
    kind : type of LatentLikelihood
        The likelihood.
    likelihood : str
        Its name.
    """
    noise_widths = widths("noise_hidden", widths_)
    if not kind.scales_with_rows:
        raise ValueError(
            f"noise_hidden= goes with likelihood='student', 'normal' or 'laplace', without lower= and upper=; found "
            f"{'bounds' if likelihood == 'normal' else repr(likelihood)}."
        )
    if not (isinstance(function, PiecewiseLinear) and function.is_homogeneous):
        raise ValueError(
            "noise_hidden= needs an activation for which σ(c z) = c σ(z) for every c > 0: 'relu', 'leaky_relu', 'abs', "
            "'identity' or such a table. Change activation=, or leave noise_hidden= out."
        )
    return noise_widths

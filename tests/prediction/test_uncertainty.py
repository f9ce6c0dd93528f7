"""The split of predictive uncertainty, against draws of y for each draw of the posterior by itself."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy.stats import norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.prediction import forward_draws, new_rows
from pymc_gibbsnn.prediction.new_rows import NewRows
from pymc_gibbsnn.prediction.uncertainty import entropy, entropy_given_latents
from tests.helpers import slow_but

RNG = np.random.default_rng(3)
X = RNG.normal(size=(9, 2))
Y = np.sin(X[:, 0])
X_NEW = 0.4 * RNG.normal(size=(3, 2))
COUNTS = np.arange(9) % 4
THETAS, REPEATS = 40, 1000
FIXED = {"noise": 0.6, "prior": None}


def repeated_draws(model, thetas=THETAS, repeats=REPEATS, factor=1.0):
    """Draws of all parameters from the prior, of which each stands many times in the posterior."""
    rvs = [model[name] for name in pmg.without_latents(model)]
    rvs = [rv for rv in rvs if rv in model.free_RVs]
    values = pm.draw(rvs, draws=thetas, random_seed=1, mode="AS_WRITTEN")
    values = [x[None] for x in values] if thetas == 1 else values  # PyMC leaves the axis of a single draw out
    # PyMC draws cutpoints in any order from their prior; large weights give counts and the like heavy tails
    values = [np.sort(x) if "cutpoints" in rv.name else x for rv, x in zip(rvs, values, strict=True)]
    values = [x * factor if rv.name[0] in "Wb" else x for rv, x in zip(rvs, values, strict=True)]
    values = {rv.name: np.repeat(x, repeats, axis=0)[None] for rv, x in zip(rvs, values, strict=True)}
    return _compat.inference_data({"posterior": _compat.dataset(model, values, 0)})


def split_by_draws(samples):
    """Var(E[y | θ]) and E(Var[y | θ]) over the parameters, from draws of y, and the standard error of either."""
    y = samples.values[0].astype(float).reshape(THETAS, REPEATS, *samples.shape[2:])
    within = y.var(axis=1, ddof=1).mean(0)
    between = y.mean(axis=1).var(axis=0) - within * (1 - 1 / THETAS) / REPEATS
    kurtosis = ((y - y.mean(1, keepdims=True)) ** 4).mean((0, 1)) / within**2
    # Of the draws of y, and of m and m' in a fourth of them, of which the variance is at most that of y
    error = np.sqrt((4 * np.maximum(between, 0) * within + 5 * (kurtosis + 1) * within**2) / (THETAS * REPEATS))
    return between, within, error


def plain(observe):
    """A model without a network and without latents."""
    with pm.Model() as model:
        observe(pm.Data("X", X) @ pm.Normal("w", 0, 0.5, shape=2))
    return model


def custom(f):
    pm.CustomDist(
        "y",
        f,
        logp=lambda value, mu: -((value - mu) ** 2),
        random=lambda mu, rng=None, size=None: mu + rng.uniform(-1, 1, size=size),
        observed=Y,
    )


NUMBERS = {
    "normal": lambda: pmg.mlp(X, Y, 3, likelihood="normal", **FIXED),
    "two layers": lambda: pmg.mlp(X, np.c_[Y, -Y], [3, 2], likelihood="normal", **FIXED),
    "tanh": lambda: pmg.mlp(X, Y, 3, activation="tanh", likelihood="normal", **FIXED),
    "rows": lambda: pmg.mlp(X, Y, 3, likelihood="normal", noise_hidden=2, noise="learned", prior=None),
    "student": lambda: pmg.mlp(X, Y, 3, likelihood="student", **FIXED),
    "laplace": lambda: pmg.mlp(X, Y, 3, likelihood="laplace", **FIXED),
    "mixture": lambda: pmg.mlp(X, Y, 3, likelihood="mixture", **FIXED),
    "poisson": lambda: pmg.mlp(X, COUNTS, 2, likelihood="poisson", noise=0.3, prior=None),
    "negative_binomial": lambda: pmg.mlp(X, COUNTS, 2, likelihood="negative_binomial", noise=0.3, prior=None),
    "binomial": lambda: pmg.mlp(X, COUNTS, 3, likelihood="binomial", trials=np.full(9, 5), **FIXED),
    "gamma": lambda: pmg.mlp(X, np.exp(Y), 2, likelihood="gamma", noise=0.3, prior=None),
    "beta": lambda: pmg.mlp(X, 0.5 + Y / 3, 3, likelihood="beta", **FIXED),
    "lognormal": lambda: pmg.mlp(X, np.exp(Y), 2, likelihood="lognormal", noise=0.3, prior=None),
    "censored": lambda: pmg.mlp(X, np.minimum(Y, 0.5), 3, likelihood="normal", upper=np.full(9, 0.5), **FIXED),
    "wide": lambda: pmg.wide_mlp(X, Y, 20),
    "classical": lambda: pmg.classical_mlp(X, Y, 3, likelihood="normal"),
    "custom": lambda: plain(custom),
    "laplace by hand": lambda: plain(lambda f: pm.Laplace("y", f, 2, observed=Y)),
    "by hand": lambda: plain(lambda f: pm.Gamma("y", 2, pt.exp(f), observed=Y + 2)),
}
HEAVY = {"poisson", "negative_binomial", "gamma", "lognormal"}
WITHOUT_LATENTS = {"wide", "classical", "laplace by hand", "by hand"}


@pytest.mark.parametrize("name", slow_but({"normal", "two layers", "student", "poisson", "custom", "by hand"}, NUMBERS))
def test_the_split_of_the_variance_is_that_of_draws_for_each_draw_of_the_posterior(name):
    model = NUMBERS[name]()
    new = {key: x for key, x in {"X": X_NEW, "trials": [5, 5, 5], "upper": [0.5] * 3}.items() if key in model}
    idata = repeated_draws(model, factor=0.4 if name in HEAVY else 1)
    found = pmg.predict(idata, model, new, samples=True, random_seed=1)
    between, within, error = split_by_draws(found["samples"])
    for key, expected in [("sd_epistemic", between), ("sd_aleatoric", within)]:
        assert (np.abs(found[key] ** 2 - expected) < 5 * error).all(), (key, found[key] ** 2, expected, error)
    assert (5 * error < 0.5 * np.maximum(within, between)).all()
    np.testing.assert_allclose(found["sd_epistemic"] ** 2 + found["sd_aleatoric"] ** 2, found["sd"] ** 2)
    y = found["samples"].values[0].astype(float)
    drawn, squares = y.var(axis=0), (y - y.mean(axis=0)) ** 2
    assert (np.abs(found["sd"] ** 2 - drawn) < 5 * squares.std(axis=0) / len(y) ** 0.5).all()
    if name in ("custom", "mixture", "censored"):
        np.testing.assert_allclose(found["sd"] ** 2, drawn)
    elif name in WITHOUT_LATENTS:  # nothing is drawn
        other = pmg.predict(idata, model, new, random_seed=2)
        xr.testing.assert_allclose(found[["mean", "sd", "sd_epistemic"]], other[["mean", "sd", "sd_epistemic"]])


def test_the_split_by_the_moments_of_a_relu_with_noise():
    """E max(Z, 0) and its variance for normal Z have closed forms, and then those of y."""
    noise = np.array([0.8, 0.5, 0.3])  # of Z, A and y
    with pm.Model() as model:
        w, v = pm.Normal("W1", shape=(3, 2)), pm.Normal("W2", shape=3)
        z = pm.Normal("Z2", pm.Data("X", X) @ w.T, noise[0])
        a = pm.Normal("A2", pm.math.maximum(z, 0), noise[1])
        pm.Normal("y", a @ v, noise[2], observed=Y)
    rng, draws = np.random.default_rng(5), 20_000
    w, v = rng.normal(size=(1, draws, 3, 2)), rng.normal(size=(1, draws, 3))
    idata = {"posterior": xr.Dataset({"W1": (("chain", "draw", "a", "b"), w), "W2": (("chain", "draw", "c"), v)})}
    m, s = np.einsum("cduj,nj->dnu", w, X_NEW), noise[0]
    first = m * norm.cdf(m / s) + s * norm.pdf(m / s)
    second = (m**2 + s**2) * norm.cdf(m / s) + m * s * norm.pdf(m / s)
    mean = (first * v[0][:, None]).sum(-1)
    latent = ((second - first**2) * v[0][:, None] ** 2).sum(-1)
    rest = noise[1] ** 2 * (v[0] ** 2).sum(-1).mean() + noise[2] ** 2
    epistemic, w = mean.var(axis=0), latent.mean(axis=0)
    found = pmg.predict(idata, model, X_NEW, random_seed=1)
    error = np.sqrt((2 * (epistemic + w) ** 2 + 8 * w**2) / draws)  # that of the docstring
    assert (np.abs(found["sd_epistemic"] ** 2 - epistemic) < 4 * error).all()
    assert (np.abs(found["sd_aleatoric"] ** 2 - w - rest) < 4 * np.sqrt(8 * w**2 / draws)).all()
    assert (np.abs(found["sd"] ** 2 - epistemic - w - rest) < 4 * error).all()
    assert (error < 0.1 * epistemic).all()


CLASSES = {
    "binary probit": lambda: pmg.mlp(X, (Y > 0).astype(int), 3, likelihood="probit", **FIXED),
    "probit": lambda: pmg.mlp(X, COUNTS, 3, likelihood="probit", **FIXED),
    "bernoulli": lambda: pmg.mlp(X, (Y > 0).astype(int), 3, likelihood="bernoulli", **FIXED),
    "categorical": lambda: pmg.mlp(X, COUNTS, 3, likelihood="categorical", **FIXED),
    "ordered": lambda: pmg.mlp(X, COUNTS, 3, likelihood="ordered", **FIXED),
    "classical": lambda: pmg.classical_mlp(X, COUNTS, 3),
}


@pytest.mark.parametrize("name", slow_but({"binary probit", "probit", "bernoulli", "classical"}, CLASSES))
def test_the_entropies_are_those_of_draws_for_each_draw_of_the_posterior(name):
    model = CLASSES[name]()
    found = pmg.predict(repeated_draws(model, 20, 2000), model, X_NEW, samples=True, random_seed=1)
    y = found["samples"].values.reshape(20, 2000, -1)
    p = (y[..., None] == np.arange(found.sizes["class"])).mean(axis=1)
    bias = (found.sizes["class"] - 1) / 2 / 2000  # of the entropy of observed frequencies
    # The standard deviation of log p is below 1 here, and that of the entropy given latents as well
    error = 5 / np.sqrt(20 * 2000 / forward_draws.EVERY) + 0.003  # what the jackknife leaves
    assert (np.abs(found["entropy"] - entropy(p.mean(0))) < error).all()
    assert (np.abs(found["expected_entropy"] - entropy(p).mean(0) - bias) < error).all()
    assert (found["mutual_information"] > 0).all()
    np.testing.assert_allclose(found["expected_entropy"] + found["mutual_information"], found["entropy"])


def test_the_jackknife_takes_most_of_the_bias_away():
    """With one draw of the latents, entropies are those given them, which is less than without."""
    z = np.random.default_rng(1).normal(0.5, 1, size=(2, 100_000))
    p = 1 / (1 + np.exp(-np.stack([z, -z], axis=-1)))
    expected, single = entropy(p.mean((0, 1))), entropy(p[0]).mean()
    corrected = entropy_given_latents(*p).mean()
    assert abs(corrected - expected) < 0.1 * (expected - single)


def test_labels_that_cannot_be_split_have_their_entropy_alone():
    """Those that are a function of a latent on which something else depends, too."""
    with pm.Model() as model:
        z = pm.Normal("Z2", pm.Data("X", X) @ pm.Normal("w", shape=2), 1)
        pmg.SignLabel("y", pm.Normal("Z3", z, 1) + z, observed=(Y > 0).astype(int))
    idata = {"posterior": xr.Dataset({"w": (("chain", "draw", "k"), np.ones((1, 400, 2)))})}
    found = pmg.predict(idata, model, X_NEW, random_seed=1)
    assert set(found) == {"probability", "label", "entropy"}


def test_an_estimate_below_zero_is_told():
    """If all draws are the same, nothing is epistemic, and half of the estimates are negative."""
    model = NUMBERS["two layers"]()
    idata = repeated_draws(model, 1, 400)
    many = RNG.normal(size=(20, 2))
    with pytest.warns(UserWarning, match=r"sd_epistemic is 0 in \d+ of 20 rows, where the estimate") as told:
        found = pmg.predict(idata, model, many, random_seed=1)
    assert [one.filename for one in told] == [__file__]
    count = int((found["sd_epistemic"] == 0).any("output").sum())
    assert f"in {count} of 20" in str(told[0].message)
    np.testing.assert_allclose(found["sd_epistemic"] ** 2 + found["sd_aleatoric"] ** 2, found["sd"] ** 2)


def test_students_t_without_a_variance():
    model = plain(lambda f: pm.StudentT("y", nu=1.9, mu=f, sigma=1, observed=Y))
    found = pmg.predict(repeated_draws(model), model, X_NEW, random_seed=1)
    assert np.isinf(found["sd"]).all()
    assert np.isinf(found["sd_aleatoric"]).all()
    assert np.isfinite(found["sd_epistemic"]).all()


@pytest.mark.parametrize("name", ["two layers", "student"])
def test_rows_at_one_draw_are_independent_and_so_are_draws_of_one_row(name, monkeypatch):
    """Noise is common to rows at different draws only; also where draws are taken in parts."""
    monkeypatch.setattr(new_rows, "AT_ONCE", 2**12)
    monkeypatch.setattr(forward_draws, "AT_ONCE", 2**10)
    model = NUMBERS[name]()
    found = pmg.predict(repeated_draws(model, 1, 20_000), model, X_NEW, samples=True, random_seed=1)
    y = found["samples"].values[0].reshape(20_000, 3, -1)
    y = (y - y.mean(0)) / y.std(0)
    kurtosis = (y**2).var(0).max()
    for function in (np.copy, lambda x: x**2 - 1):
        f = function(y)
        at_once = [(f[:, i] * f[:, j]).mean(0) for i, j in [(0, 1), (0, 2), (1, 2)]]
        later = [(f[lag:] * f[:-lag]).mean(0) for lag in (1, 2, 3)]
        bound = 4.5 / np.sqrt(20_000) * (1 if function is np.copy else kurtosis)
        assert max(np.abs(np.concatenate([np.ravel(x) for x in (*at_once, *later)]))) < bound


def test_what_is_a_pair():
    """Latents drawn twice are independent, given the same parameters."""
    model = NUMBERS["two layers"]()
    rows = NewRows(model, _compat.dataset_of(repeated_draws(model, 1, 40_000), "posterior"), X_NEW)
    forward = forward_draws.ForwardDraws(rows)
    pairs = [batch.pair for batch in forward.batches(np.random.default_rng(1), slice(0, 3), False)]
    one, other = (np.concatenate(x).reshape(10_000, -1) for x in zip(*pairs, strict=True))
    one, other = (x - x.mean(0) for x in (one, other))
    assert (np.abs((one * other).mean(0)) < 4.5 * one.std(0) * other.std(0) / 100).all()
    np.testing.assert_allclose(one.std(0), other.std(0), rtol=0.1)

"""Inputs whose rows have factors: how they are read, their conditionals, the sweep, and predictions."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import normal
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.moves.factors_of_inputs import factors_of_rows, log_added_density
from pymc_gibbsnn.networks.random_inputs import FactorModel
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import MODES, MOSTLY_PYTHON, check_moments, compile_draw, of_known_lengths, slow, slow_but
from tests.moves.test_mixture_of_inputs import (
    DEVIATIONS,
    MEANS,
    K,
    check_predictions,
    components,
    posterior,
    through_network,
)
from tests.moves.test_random_inputs import FAST, HOLES, NEW, D, N, Y, learned_error, measured, missing, move_of_inputs
from tests.samplers.test_gibbs import NUMBA, check_geweke

pytestmark = pytest.mark.filterwarnings("ignore:Data in .* contains missing values")

FACTORS = 2
RNG = np.random.default_rng(4)
LOADINGS = RNG.normal(size=(D, FACTORS))
SCALES = np.array([0.5, 1.0, 2.0])
SD = np.array([1.0, 0.7])  # of factors


def common(loadings=None, rows=N, columns=D):
    """What factors add to the means, with loadings that are learned or known."""
    f = pm.Normal("f", 0, SD, shape=(rows, FACTORS))
    if loadings is None:
        loadings = pm.Normal("V", -1.5, 0.8, shape=(columns, FACTORS))
    return f @ pt.as_tensor(loadings).T


def learned(rows=N, columns=D):
    """Factors and a mixture, with conjugate priors of all that there is."""
    c = components(rows)
    mean = pm.Normal("mu", 0.2, 1.5, shape=(K, columns))
    tau = pt.sqrt(pm.InverseGamma("tau2", 5, 4, shape=(K, columns)))
    return mean[c] + common(rows=rows, columns=columns), tau[c]


def without_mixture():
    tau = pt.sqrt(pm.InverseGamma("tau2", 5, 4, shape=D))
    return pm.Normal("mu", 0, 1, shape=D) + common(), tau


# How they are read


@pytest.mark.parametrize(
    ("prior", "names"),
    [
        (learned, ["mu", "tau2_log__", "pi_simplex__", "V"]),
        (without_mixture, ["mu", "tau2_log__", "V"]),
        (lambda: (common(LOADINGS), 1.0), []),
        slow(lambda: (common() - pm.Normal("mu", 0, 1, shape=D), 1.0), ["V"]),
        (lambda: (0.3 + pm.Normal("f", 0, 1, shape=(N, 1)) @ pm.Normal("V", 0, SCALES, shape=(1, D)), 1.0), ["V"]),
        slow(lambda: (common(pm.Normal("V", 0, SCALES[:, None], shape=(D, FACTORS))), 1.0), ["V"]),
        slow(lambda: (pt.ones((N, 1)) @ pt.ones((1, D)) - 0.5 * common(), 1.0), []),
        # of loadings that are a function of other variables, these are for other steps
        slow(lambda: (common(pt.exp(pm.Normal("V", 0, 1, shape=(D, FACTORS)))), 1.0), []),
    ],
)
def test_which_variables_are_drawn(prior, names):
    for model in (missing(prior=prior), measured(prior=prior)):
        inputs = read_network(model).random_inputs
        assert [v.name for v in inputs.of_columns] == names
        assert inputs.of_rows[-1].name == "f"
        assert not {"f", "c"} & set(pmg.without_latents(model))
        step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
        for _ in range(3):
            point, [found] = step.step(point)
        drawn = [rv for rv in model.basic_RVs if model.rvs_to_values[rv] in step.vars or rv in model.observed_RVs]
        logp = model.compile_logp(drawn, mode="AS_WRITTEN")
        np.testing.assert_allclose(found["lp"], logp(point), rtol=1e-6)


def test_loadings_may_rotate():
    """Nothing judges convergence by them, nor by what belongs to components."""
    assert [one.name for one in read_network(missing(prior=without_mixture)).random_inputs.identified] == ["mu", "tau2"]
    assert read_network(missing(prior=learned)).random_inputs.identified == []


def two_products():
    g = pm.Normal("g", 0, 1, shape=(N, 1))
    return common() + g @ pm.Normal("U", 0, 1, shape=(1, D)), 1.0


def used_elsewhere():
    mean = common(LOADINGS)
    pm.Normal("other", pm.modelcontext(None)["f"][:, 0], 1, observed=np.zeros(N))
    return mean, 1.0


def in_a_potential():
    mean = common(LOADINGS)
    pm.Potential("tilt", -pm.modelcontext(None)["f"].sum())
    return mean, 1.0


def factors_of_all_rows():
    return pm.Normal("f", 0, 1, shape=(1, FACTORS)) @ pt.as_tensor(LOADINGS).T, 1.0


def loadings_of_all_columns():
    return pm.Normal("f", 0, 1, shape=(N, FACTORS)) @ pm.Normal("V", 0, 1, shape=(1, FACTORS)).T, 1.0


def with_data_for_a_scale():
    return pm.Normal("f", 0, pm.Data("s", 1.0), shape=(N, 1)) @ pt.ones((1, D)), 1.0


def with_another_mean():
    return pm.Normal("f", 1, 1, shape=(N, 1)) @ pt.ones((1, D)), 1.0


def with_a_learned_scale():
    return pm.Normal("f", 0, pm.HalfNormal("s"), shape=(N, 1)) @ pt.ones((1, D)), 1.0


def loadings_of_components():
    c = components(weights=np.array([0.2, 0.5, 0.3]))
    return pt.as_tensor(MEANS)[c] + common(LOADINGS + c.sum()), 1.0


def test_components_that_loadings_depend_on_are_left_to_other_steps():
    inputs = read_network(missing(prior=loadings_of_components)).random_inputs
    assert inputs.mixture is None
    assert inputs.factor_model is not None


def also_in_the_scale():
    mean = common(LOADINGS)
    return mean, pt.exp(pm.modelcontext(None)["f"][:, :1])


@pytest.mark.parametrize(
    "prior",
    [
        two_products,
        used_elsewhere,
        in_a_potential,
        factors_of_all_rows,
        loadings_of_all_columns,
        with_data_for_a_scale,
        with_another_mean,
        with_a_learned_scale,
        also_in_the_scale,
    ],
)
def test_other_forms_are_left_to_other_steps(prior):
    model = missing(prior=prior)
    inputs = read_network(model).random_inputs
    assert inputs.factor_model is None
    assert not {"f", "V"} & {v.name for v in pmg.GibbsNN(model=model, **FAST).vars}


def test_a_variance_that_is_also_in_the_loadings_has_no_closed_form():
    def prior():
        tau2, mu = pm.InverseGamma("tau2", 5, 4, shape=D), pm.Normal("mu", 0, 1, shape=D)
        return mu + common(pt.stack([tau2, mu], axis=1)), pt.sqrt(tau2)

    assert not read_network(missing(prior=prior)).random_inputs.learned


# Oracle 1: the conditionals


def dense(loadings, precision, sd):
    """The precision of a row and its factors, (x, f), in their prior."""
    k = loadings.shape[1]
    cross = -precision[:, None] * loadings
    of_factors = np.diag(1 / sd**2 * np.ones(k)) + loadings.T @ (precision[:, None] * loadings)
    return np.block([[np.diag(precision), cross], [cross.T, of_factors]])


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_factors_given_the_known_entries_against_a_dense_gaussian(mode):
    """Draws given known entries, and what factors add to the density of these entries, in three components."""
    rng, copies, k = np.random.default_rng(1), 40_000, 3
    loadings, s2, known = rng.normal(size=(D, k)), np.array([0.5, 1.0, 2.0]), np.array([[1.0, 1, 0], [0, 1, 0]])
    x, precision = rng.normal(size=(2, D)), np.exp(rng.normal(size=D))
    model = FactorModel("f", None, k, pt.constant(s2), pt.constant(loadings), pt.zeros((1, D)), None)

    def build(generator):
        generator, xi = draw(normal, generator, 0.0, 1.0, size=(2 * copies, k))
        which = np.repeat([0, 1], copies)
        f = factors_of_rows(pt.constant(x[which]), pt.constant((precision * known)[which]), model, xi)
        added = log_added_density(
            pt.constant(x), pt.constant(MEANS), pt.constant(DEVIATIONS**2), pt.constant(known), model
        )
        return of_known_lengths([generator, f, added])

    f, added = compile_draw(build, mode)()
    for i in range(2):
        o = known[i] > 0
        whole = dense(loadings, precision, np.sqrt(s2))
        keep = np.r_[np.zeros(D, bool), np.ones(k, bool)]
        # entries that are not known are integrated out of the joint distribution of the row and its factors
        free = np.r_[~o, np.ones(k, bool)]
        given_known = np.linalg.inv(whole[np.ix_(free, free)])
        mean = given_known @ -whole[np.ix_(free, ~free)] @ x[i, o]
        check_moments(f[i * copies : (i + 1) * copies], mean[keep[free]], given_known[-k:, -k:])
        for c in range(K):
            own = np.diag(DEVIATIONS[c, o] ** 2)
            exact = stats.multivariate_normal.logpdf(
                x[i, o], MEANS[c, o], own + loadings[o] @ np.diag(s2) @ loadings[o].T
            )
            plain = stats.norm.logpdf(x[i, o], MEANS[c, o], DEVIATIONS[c, o]).sum()
            np.testing.assert_allclose(added[i, c], exact - plain, rtol=1e-6)


COPIES = 20_000
PATTERNS = np.array([[0.3, np.nan, np.nan], [np.nan, -0.7, np.nan]])
MU, TAU, ERROR = np.array([0.4, -1.0, 2.0]), np.array([0.5, 1.5, 0.8]), np.array([0.6, 0.9, 0.3])
STANDARDISED = {"mean": np.array([0.5, -2.0, 1.0]), "deviation": np.array([2.0, 0.7, 1.0])}
CONDITIONALS = {
    "holes": {"known": PATTERNS},
    "holes, a prior by entry": {"known": PATTERNS, "tau": TAU * np.array([[1.0], [2.0]])},
    "holes, standardised, scales of rows": {"known": PATTERNS, "scale": np.array([1.0, 0.4])} | STANDARDISED,
    "holes, two networks": {"known": PATTERNS, "noise_units": 0},
    "measured": {},
    "measured, two networks": {"noise_units": 0},
}
QUICK = {
    ("holes", "NUMBA"),
    ("holes", "JAX"),
    ("holes, standardised, scales of rows", "AS_WRITTEN"),
    ("measured", "JAX"),
}


@pytest.mark.filterwarnings("ignore:Cannot cache compiled function")  # of constants as long as these
@pytest.mark.parametrize(("name", "mode"), slow_but(QUICK, product(CONDITIONALS, MODES)))
def test_entries_and_factors_against_a_dense_gaussian(name, mode):
    case = {"known": None, "tau": TAU, "scale": None, "mean": None, "deviation": 1.0, "noise_units": None}
    case |= CONDITIONALS[name]
    which = np.tile([0, 1], COPIES)
    tau = np.broadcast_to(case["tau"], (2, D))
    rng = np.random.default_rng(1)
    w, b, z, x_measured = rng.normal(size=(4, D)), rng.normal(size=4), rng.normal(size=(2, 4)), rng.normal(size=(2, D))
    v, g = rng.normal(size=(1, D)), np.array([0.4, -0.8])
    arguments = {"units": 4, "y": np.zeros(2 * COPIES)} | {
        key: case[key] for key in ("mean", "deviation", "noise_units")
    }
    arguments["scale"] = 1.0 if case["scale"] is None else case["scale"][which]
    arguments["prior"] = lambda: (
        MU + common(LOADINGS, rows=2 * COPIES),
        tau[which] if np.ndim(case["tau"]) == 2 else TAU,
    )
    if case["known"] is None:
        model = measured(ERROR, x=x_measured[which], **arguments)
    else:
        model = missing(case["known"][which], **arguments)
    values = model.initial_point() | {"W1": w, "b1": b, "Z2": z[which], "V": v[0], "G": g[which]}
    x, f = move_of_inputs(model, values, mode)()

    scale, w, v = case["scale"], w / case["deviation"], v / case["deviation"]
    b = b - w @ (np.zeros(D) if case["mean"] is None else case["mean"])
    if case["noise_units"] == 0:
        scale = np.sqrt(0.1 + np.exp(0.7 * g))
    unknown = np.ones((2, D), bool) if case["known"] is None else np.isnan(case["known"])
    drawn = np.full((2 * COPIES, D), np.nan)
    drawn[unknown[which]] = np.ravel(x)
    drawn = np.c_[drawn, f]
    for i in range(2):
        noise = (0.5 * (1 if scale is None else scale[i])) ** 2
        precision = dense(LOADINGS, 1 / tau[i] ** 2, SD)
        linear = precision @ np.r_[MU, np.zeros(FACTORS)]
        precision[:D, :D] += w.T @ w / noise
        linear[:D] += w.T @ (z[i] - b) / noise
        if case["noise_units"] == 0:
            precision[:D, :D] += v.T @ v / 0.49
            linear[:D] += v[0] * g[i] / 0.49
        if case["known"] is None:
            precision[:D, :D] += np.diag(1 / ERROR**2)
            linear[:D] += x_measured[i] / ERROR**2
        m = np.r_[unknown[i], np.ones(FACTORS, bool)]
        known = np.r_[np.nan_to_num(PATTERNS[i]), np.zeros(FACTORS)] * ~m
        linear = (linear - precision @ known)[m]
        covariance = np.linalg.inv(precision[np.ix_(m, m)])
        check_moments(drawn[i::2][:, m], covariance @ linear, covariance)


@pytest.mark.parametrize(("kind", "mode"), slow_but({(missing, "NUMBA")}, product((missing, measured), MODES)))
def test_loadings_means_and_variances_against_their_closed_form(kind, mode):
    """Given the old factors and components: V given the old μ and τ², then μ given this V, then τ² given both."""
    draws, rng = 1500 if mode != "JAX" else 500, np.random.default_rng(3)
    model = kind(prior=learned)
    values = model.initial_point() | {"tau2_log__": rng.normal(size=(K, D)), "mu": MEANS, "c": np.arange(N) % K}
    values |= {"f": rng.normal(size=(N, FACTORS)), "V": LOADINGS}
    name = read_network(model).random_inputs.value.name
    values[name] = rng.normal(size=values[name].shape)
    x = values[name] if kind is measured else HOLES.copy()
    if kind is missing:
        x[np.isnan(x)] = values[name]
    move = move_of_inputs(model, values, mode)
    _, _, _, mu, tau2, _, loadings = (np.stack(found) for found in zip(*(move() for _ in range(draws)), strict=True))
    f, c, variances = values["f"], values["c"], np.exp(values["tau2_log__"])
    for j in range(D):
        precision = np.eye(FACTORS) / 0.8**2 + (f / variances[c, j, None]).T @ f
        linear = -1.5 / 0.8**2 + f.T @ ((x[:, j] - MEANS[c, j]) / variances[c, j])
        check_moments(loadings[:, j], np.linalg.solve(precision, linear), np.linalg.inv(precision))
    rest = x - f @ loadings.mT
    indicators = (c[:, None] == np.arange(K)).astype(float)
    precision = 1 / 1.5**2 + indicators.sum(axis=0)[:, None] / variances
    mean = (0.2 / 1.5**2 + indicators.T @ rest / variances) / precision
    u = stats.norm.cdf((mu - mean) * np.sqrt(precision))
    squares = indicators.T @ (rest - mu[:, c]) ** 2
    v = stats.invgamma.cdf(np.exp(tau2), 5 + indicators.sum(axis=0)[:, None] / 2, scale=4 + squares / 2)
    for numbers in (u, v):
        assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("mode", slow_but({"NUMBA"}, MODES))
def test_components_are_drawn_with_factors_integrated_out(mode):
    """Many rows with the same inputs, and with factors that would tell of the component."""
    copies, x, weights = 20_000, np.array([0.3, -0.4, 0.5]), np.array([0.2, 0.5, 0.3])

    def prior():
        c = components(copies, weights)
        return pt.as_tensor(MEANS)[c] + common(LOADINGS, rows=copies), pt.as_tensor(DEVIATIONS)[c]

    model = measured(x=np.tile(x, (copies, 1)), prior=prior, y=np.zeros(copies))
    values = model.initial_point() | {"x": np.tile(x, (copies, 1)), "f": np.full((copies, FACTORS), 3.0)}
    _, c, _ = move_of_inputs(model, values, mode)()
    shared = LOADINGS @ np.diag(SD**2) @ LOADINGS.T
    exact = weights * [
        stats.multivariate_normal.pdf(x, m, np.diag(s**2) + shared) for m, s in zip(MEANS, DEVIATIONS, strict=True)
    ]
    assert stats.chisquare(np.bincount(c, minlength=K), copies * exact / exact.sum()).pvalue > 1e-3


# Oracle 2: the sweep as a whole


@pytest.mark.slow
@pytest.mark.parametrize("interweave", [False, "auto"])
def test_geweke(interweave):
    """Nothing is known of the inputs, so that all they have is drawn from the prior."""

    def prior():
        c = pm.Categorical("c", pm.Dirichlet("pi", np.array([2.0, 3.0])), shape=5)
        mean = pm.Normal("mu", [[-0.5], [0.6]], 0.4, shape=(2, 2))
        f = pm.Normal("f", 0, 1, shape=(5, 1))
        mean = mean[c] + f @ pm.Normal("V", [[1.0, -1.5]], 0.3, shape=(1, 2))
        return mean, pt.sqrt(pm.InverseGamma("tau2", 12, 2, shape=(2, 2)))[c]

    model = missing(np.full((5, 2), np.nan), prior=prior, y=Y[:5], noise=1.0)
    check_geweke(model, 8000, interweave=interweave, **NUMBA)


# Predictions


def brute_force(posterior, x_new, error, copies, noise=0.5):
    """Draws of the mean of y and of y at new rows, given each draw of the posterior: (draw, copy, row)."""
    rng, means, ys = np.random.default_rng(1), [], []
    p = {name: x.values.reshape(-1, *x.shape[2:]) for name, x in posterior.items()}
    for s in range(len(p["pi"])):
        shared, x = p["V"][s] @ np.diag(SD**2) @ p["V"][s].T, np.empty((copies, *x_new.shape))
        error2 = np.zeros(D) if error is None else np.broadcast_to(error(p["error2"][s]) ** 2, D)
        for i, row in enumerate(x_new):
            o = ~np.isnan(row)
            covariances = [np.diag(t) + shared for t in p["tau2"][s]]
            seen = [(c + np.diag(error2))[np.ix_(o, o)] for c in covariances]
            logs = [
                stats.multivariate_normal.logpdf(row[o], m[o], c) if o.any() else 0.0
                for m, c in zip(p["mu"][s], seen, strict=True)
            ]
            shares = p["pi"][s] * np.exp(logs)
            chosen = rng.choice(K, size=copies, p=shares / shares.sum())
            for k in range(K):
                m, whole, at = p["mu"][s][k], covariances[k], chosen == k
                gain = whole[:, o] @ np.linalg.inv(seen[k])
                center, rest = m + gain @ (row[o] - m[o]), whole - gain @ whole[o]
                x[at, i] = rng.multivariate_normal(center, (rest + rest.T) / 2, size=at.sum(), check_valid="ignore")
        mean, y = through_network(rng, x, {name: values[s] for name, values in p.items()}, noise)
        means.append(mean)
        ys.append(y)
    return np.stack(means), np.stack(ys)


@pytest.mark.parametrize(
    ("build", "error"),
    [(missing, None), slow(lambda prior: measured(learned_error(), prior=prior), lambda e: 2 * np.sqrt(e))],
    ids=["missing", "measured, a learned error"],
)
def test_predictions_against_brute_force(build, error):
    idata = posterior(300, V=2 * LOADINGS)
    check_predictions(build(prior=learned), idata, *brute_force(idata["posterior"], NEW, error, 300))


def test_mlp_has_factors_beside_the_mixture():
    x = np.random.default_rng(5).normal(size=(12, 6))
    x[::3, 2] = np.nan
    with pmg.mlp(x, x[:, 0], 2) as model:
        point = model.initial_point()
        assert point["factors_X"].shape == (12, 4)
        assert point["loadings_X"].shape == (6, 4)
        step = pmg.GibbsNN(**FAST)
        assert {v.name for v in step.vars} == {v.name for v in model.value_vars}
    with pmg.mlp(x[:, 2:4], x[:, 0], 2) as model:
        assert model.initial_point()["loadings_X"].shape == (2, 1)
    with pmg.mlp(x[:, 2:3], x[:, 0], 2) as model:
        assert "factors_X" not in model.named_vars

"""Networks that are terms t * tau of the mean of data: how they are read, their conditional, and the sweep."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from pymc_gibbsnn.networks.likelihoods.effect import EffectLikelihood
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_network, read_networks
from pymc_gibbsnn.starts.annealing import can_be_annealed
from pymc_gibbsnn.starts.fitted_start import can_be_fitted
from tests.helpers import (
    LEAN,
    MODES,
    check_mean,
    check_same_distribution,
    compile_draw,
    pm_sample,
    pmg_sample,
    random_point,
    slow_but,
)
from tests.samplers.test_gibbs import NUMBA, check_geweke, gibbs

N, D = 6, 2
RNG = np.random.default_rng(0)
X, Y, OTHER = RNG.normal(size=(N, D)), RNG.normal(size=N), RNG.normal(size=N)
T = np.array([0.0, 1.0, -1.5, 0.0, 0.4, 2.0])
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}


def hidden(number="", noise=1.0, scale=1.0):
    """A noisy hidden layer and its product with the weights above it."""
    Z2 = pm.Normal(f"Z2{number}", X @ pm.Normal(f"W1{number}", 0, 1, shape=(2, D)).T, 0.8 * noise * scale)
    A2 = pm.Normal(f"A2{number}", pt.maximum(Z2, 0), 0.6 * noise * scale)
    return A2 @ pm.Normal(f"W2{number}", 0, 1, shape=2)


def effect(number="_tau", name="tau", noise=0.7):
    return pm.Normal(name, hidden(number) + pm.Normal(f"c{number}"), noise)


def data():
    return pm.Data("y_data", Y)


def learned():
    return pt.sqrt(pm.InverseGamma("delta", 3, 2))


# Models


def two_networks(noise=0.7):
    mean = hidden() + pm.Normal("b2") + pm.Data("t", T) * effect(noise=noise)
    pm.Normal("y", mean, learned(), observed=data())


def effect_alone():
    """One variance is that of the latent and of the data."""
    sd = learned()
    pm.Normal("y", OTHER - effect(noise=sd) * T, 2 * sd, observed=data())


def two_latents():
    """That of the outcome without a treatment has the slope 1."""
    pm.Normal("y", pm.Normal("mu", hidden(), 0.5) + T * effect(), learned() * (1 + T**2), observed=data())


def three_networks():
    t = pm.Data("t", T)
    pm.Normal("y", hidden() + t * effect() + (1 - t) * effect("_b", "tau_b"), learned(), observed=data())


def product():
    """Each of two latents is the slope of the other."""
    pm.Normal("y", OTHER + effect() * effect("_b", "tau_b"), learned(), observed=data())


def label():
    z = pm.Normal("z", hidden() + T * effect(), 0.5)
    pmg.SignLabel("y", z, observed=pm.Data("y_data", (Y > 0).astype("int64")))


def heavy_tails():
    pm.StudentT("y", 4, pm.Normal("z", hidden() + T * effect(), 0.5), sigma=learned(), observed=data())


def several_outputs():
    U = [pm.Normal(f"U{i}", 0, 1, shape=(D, 2)) for i in range(2)]
    tau = pm.Normal("tau", X @ U[1], 0.5)
    pm.Normal("y", X @ U[0] + T[:, None] * tau, learned(), observed=pm.Data("y_data", np.c_[Y, OTHER]))


def rows_of_data():
    """All noise of the other network is larger in some rows."""
    scale = pt.constant(np.exp(OTHER))
    pm.Normal("y", hidden(scale=scale[:, None]) + T * effect(), learned() * scale, observed=data())


def rows_of_a_network():
    g = pm.Normal("G", X @ pm.Normal("V", 0, 0.5, shape=D), 0.5)
    scale = pt.exp(g / 2)
    pm.Normal("y", hidden(scale=scale[:, None]) + T * effect(), learned() * scale, observed=data())


MODELS = [
    two_networks, effect_alone, two_latents, three_networks, product, label, heavy_tails, several_outputs, rows_of_data,
    rows_of_a_network,
]  # fmt: skip


def model_of(build):
    with pm.Model() as model:
        build()
    return model


# How they are read


FORMS = {
    "t * tau": (lambda tau: T * tau, T),
    "tau * t": (lambda tau: tau * pm.Data("t", T), T),
    "-t * tau": (lambda tau: -T * tau, -T),
    "whole numbers": (
        lambda tau: pt.as_tensor(np.array([0, 1, 1, 0, 1, 0], "int8")) * tau,
        np.array([0, 1, 1, 0, 1, 0]),
    ),
    "booleans": (lambda tau: pt.as_tensor(T > 0) * tau, T > 0),
    "tau / t": (lambda tau: tau / (T + 3), 1 / (T + 3)),
    "2 * (t * tau) / 3": (lambda tau: 2 * (T * tau) / 3, 2 * T / 3),
    "a number": (lambda tau: -0.3 * tau, -0.3),
    "nothing": (lambda tau: tau, 1),
    "inside a difference": (lambda tau: 2 * (OTHER - T * tau), -2 * T),
}


@pytest.mark.parametrize("beside", [None, "product", "latent"])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form, beside):
    """The density of the data, as a function of tau, is PyMC's, and so are the slopes."""
    write, slope = FORMS[form]
    with pm.Model() as model:
        other = {None: lambda: OTHER, "product": hidden, "latent": lambda: pm.Normal("mu", hidden(), 0.3)}[beside]()
        pm.Normal("y", write(effect()) + other + 0.5, 0.4, observed=Y)
    [likelihood] = [x.observation for x in read_networks(model) if x.layers[-1].name == "tau"]
    assert isinstance(likelihood, EffectLikelihood)
    np.testing.assert_allclose(
        np.broadcast_to(likelihood.slope.eval(), (N, 1))[:, 0], np.broadcast_to(slope, N), rtol=1e-6
    )
    z = model.rvs_to_values[model["tau"]]
    density = pytensor.function(
        model.value_vars, likelihood.log_densities(z[:, None]).sum(), mode="AS_WRITTEN", on_unused_input="ignore"
    )
    logp = model.compile_logp([model["y"]], mode="AS_WRITTEN")
    for seed in range(2):
        point = random_point(model, seed)
        np.testing.assert_allclose(density(*(point[v.name] for v in model.value_vars)), logp(point), rtol=1e-8)


NOT_READ = {
    "absolute value": lambda tau: T * abs(tau),
    "square": lambda tau: T * tau**2,
    "function": lambda tau: T * pt.tanh(tau),
    "times a function of itself": lambda tau: T * tau * pt.exp(tau),
    "divisor": lambda tau: T / tau,
    "order of rows": lambda tau: T * tau[::-1],
    "some rows": lambda tau: tau[np.arange(N) % 3],
    "mean": lambda tau: T * tau.mean(),
    "in brackets": lambda tau: T * (tau + pm.Normal("c")),
    "chosen rows": lambda tau: pt.switch(T > 0, tau, 0),
    "twice": lambda tau: T * tau + pt.exp(tau),
}


@pytest.mark.parametrize("form", NOT_READ)
def test_other_forms_are_left_to_other_steps(form):
    with pm.Model() as model:
        pm.Normal("y", hidden() + NOT_READ[form](effect()), 0.4, observed=Y)
    message = "'tau' enters the mean of 'y' twice" if form == "twice" else r"a latent in it, as t \* Z"
    with pytest.warns(UserWarning, match=rf"leaves \['Z2_tau', 'A2_tau', 'tau'\], .* {message}"):
        [network] = read_networks(model)
    assert [v.name for v in network.variables] == ["W1", "W2", "Z2", "A2"]


@pytest.mark.parametrize("form", NOT_READ)
def test_other_forms_alone(form):
    """Where there is no other network, any distribution is read in which each row depends on its row of the latent."""
    with pm.Model() as alone:
        pm.Normal("y", OTHER + NOT_READ[form](effect()), 0.4, observed=Y)
    messages = {
        "order of rows": "must depend, in each row, on the same row of 'tau'",
        "mean": r"its density holds sum\(tau\), which takes rows together",
        "some rows": r"or add it to t \* tau with numbers t",
        "twice": "enters the mean of 'y' twice",
    }
    if form in messages:
        with pytest.raises(NetworkError, match=messages[form]):
            pmg.GibbsNN(model=alone)
        return
    point, [statistics] = gibbs(alone, **LEAN).step(random_point(alone, 0))
    np.testing.assert_allclose(statistics["lp"], alone.compile_logp(mode="AS_WRITTEN")(point))


def test_a_latent_of_another_shape_is_left_to_other_steps():
    """It would have to be drawn given several data, or be added to itself."""
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=(D, 1)), 0.5)
        pm.Normal("y", X @ pm.Normal("v", 0, 1, shape=(D, 2)) + T[:, None] * Z, 0.5, observed=np.c_[Y, OTHER])
    [network] = read_networks(model)
    assert network.layers[-1].name == "y"


def test_a_latent_with_another_use_is_left_to_other_steps():
    with pm.Model() as model:
        tau = effect()
        pm.Normal("y", hidden() + T * tau, 0.4, observed=Y)
        pm.Normal("u", tau.sum(), 1, observed=0.0)
    with pytest.warns(UserWarning, match=r"'tau' must enter 'y' and nothing else; it is used by \['u', 'y'\]"):
        assert len(read_networks(model)) == 1


@pytest.mark.parametrize(
    ("t", "message"),
    [
        (np.r_[np.nan, T[1:]], "what multiplies a latent in the mean of 'y' holds 1 values that are NaN"),
        (T[:4], r"what multiplies .* 'y' must be one number, or an array that broadcasts to \(6, 1\); .* \(4, 1\)"),
    ],
)
def test_slopes_are_checked(t, message):
    model = model_of(two_networks)
    model["t"].set_value(t)
    with pytest.raises(NetworkError, match=message):
        pmg.GibbsNN(model=model)


@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (lambda tau: pt.exp(tau), "sigma of 'y' must not depend on its location 'tau'"),
        (lambda tau: OTHER, "sigma of 'y' must be positive"),
    ],
)
def test_scales_are_refused(sigma, message):
    with pm.Model() as model:
        tau = effect()
        pm.Normal("y", T * tau, sigma(tau), observed=Y)
    with pytest.raises(NetworkError, match=message):
        pmg.GibbsNN(model=model)


def test_the_noise_of_the_latent_itself_is_one_number():
    with pm.Model() as model:
        pm.Normal("y", T * effect(noise=np.exp(OTHER)), 0.4, observed=Y)
    with pytest.raises(NetworkError, match="sigma of 'tau' differs between rows, but 'y' is drawn given the latent"):
        pmg.GibbsNN(model=model)


def test_networks_can_be_named_one_by_one():
    model = model_of(two_networks)
    of_tau = [rv for rv in model.free_RVs if rv.name.endswith("tau")]
    [alone] = read_networks(model, of_tau)
    assert alone.layers[-1].name == "tau"
    assert not alone.variances
    step = pmg.GibbsNN(of_tau, model=model, **FAST, **LEAN)
    with pytest.raises(NetworkError, match="must name all weights and latents"):
        read_networks(model, of_tau[:-1])
    point = model.initial_point()
    for _ in range(2):
        point, [found] = step.step(point)
    logp = model.compile_logp([*of_tau, model["y"]], mode="AS_WRITTEN")
    np.testing.assert_allclose(found["lp"], logp(point), rtol=1e-8)


# Oracle 1: the conditional of tau, by quadrature


@pytest.mark.parametrize("mode", MODES)
def test_the_latent_against_quadrature(mode):
    """Rows of four slopes, and of two scales; what the other terms leave of the data is 4 in each."""
    m, left, variance, base = 1.0, 4.0, 2.0, 0.8
    slopes, factors = (x.ravel() for x in np.meshgrid([0.0, 1.0, -2.0, 0.3], [0.5, 2.0]))
    t, c = (np.repeat(x, 2000)[:, None] for x in (slopes, factors))
    arguments = (pt.constant(x) for x in (np.full(len(t), 7.0), np.asarray(base**2), c))
    likelihood = EffectLikelihood("y", *arguments, slope=pt.constant(t), rest=pt.constant(np.full(t.shape, left)))
    z = pt.constant(np.zeros(t.shape))

    def build(generator):
        return likelihood.draw_latent(generator, z, pt.constant(np.full(t.shape, m)), pt.constant(variance))

    found, squares = compile_draw(build, mode)()
    np.testing.assert_allclose(squares, ((left - t * found) ** 2 / c**2).sum())
    grid = np.linspace(-15, 25, 8001)
    for part, slope, factor in zip(np.split(found.ravel(), len(slopes)), slopes, factors, strict=True):
        density = stats.norm.pdf(grid, m, variance**0.5) * stats.norm.pdf(left, slope * grid, factor * base)
        cdf = integrate.cumulative_simpson(density, x=grid, initial=0)
        assert stats.kstest(part, lambda x, cdf=cdf: np.interp(x, grid, cdf / cdf[-1])).pvalue > 1e-3


# Oracle 2: the sweep


@pytest.mark.parametrize("build", slow_but({two_latents, product, label, rows_of_a_network}, MODELS))
def test_log_density_of_the_sweep(build):
    model = model_of(build)
    step = pmg.GibbsNN(model=model, **FAST)
    assert {v.name for v in step.vars} == {v.name for v in model.value_vars}
    point, logp = model.initial_point(), model.compile_logp(mode="AS_WRITTEN")
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], logp(point), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("build", MODELS)
def test_geweke(build):
    kwargs = NUMBA if build is rows_of_a_network else NUMBA | {"interweave": False}
    check_geweke(model_of(build), 20_000 if build in (label, heavy_tails, rows_of_a_network) else 12_000, **kwargs)


def test_slopes_may_be_variables_that_other_steps_move():
    with pm.Model() as model:
        slope = pm.Normal("slope", shape=2)
        pm.Normal("y", hidden() + slope[np.arange(N) % 2] * effect(), learned(), observed=Y)
        steps = [pmg.GibbsNN(**FAST, **LEAN), pm.Slice([slope], **FAST)]
        idata = pm_sample(model, 5, steps, tune=5, chains=1)
    assert len(np.unique(idata["posterior"]["slope"])) > 3
    rvs, point = [model.values_to_rvs[v] for v in steps[0].vars], model.initial_point()
    point["slope"] = np.array([2.0, -3.0])
    point, [found] = steps[0].step(point)
    logp = model.compile_logp([*rvs, model["y"]], mode="AS_WRITTEN")
    np.testing.assert_allclose(found["lp"], logp(point), rtol=1e-8)


# What users meet


def linear(n=40):
    """A model of which the posterior is known: an effect that is linear in the inputs, and its noise."""
    rng = np.random.default_rng(3)
    x, t = rng.normal(size=(n, 2)), rng.normal(size=n) * (np.arange(n) % 3 > 0)
    y = x @ [1.0, -1.0] + t * (x @ [0.5, 2.0]) + 0.4 * rng.normal(size=n)
    with pm.Model() as model:
        X, t_data = pm.Data("X", x), pm.Data("t", t)
        tau = pm.Normal("tau", X @ pm.Normal("v", 0, 1, shape=2), 0.5)
        pm.Normal("y", X @ pm.Normal("w", 0, 1, shape=2) + t_data * tau, 0.4, observed=y)
    design, variance = np.c_[x, t[:, None] * x], 0.4**2 + (0.5 * t) ** 2
    covariance = np.linalg.inv(np.eye(4) + design.T @ (design / variance[:, None]))
    return model, covariance @ design.T @ (y / variance), covariance


@pytest.mark.slow
@pytest.mark.parametrize("sample", [pm_sample, pmg_sample])
def test_the_posterior_of_a_linear_effect(sample):
    """Weights, against the closed form."""
    model, mean, covariance = linear()
    idata = sample(model, 6000, tune=100, step=pmg.GibbsNN(model=model), var_names=["w", "v"])
    draws = np.concatenate([idata["posterior"][name].values for name in "wv"], axis=-1)
    for k in range(4):
        check_mean(draws[..., k], mean[k])
        check_mean((draws[..., k] - mean[k]) ** 2, covariance[k, k])


def test_predictions_of_a_linear_effect():
    """Against the closed form, by draws of it."""
    model, mean, covariance = linear()
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, size=(2, 3000))
    posterior = _compat.dataset(model, {"w": draws[..., :2], "v": draws[..., 2:]}, 0)
    idata = {"posterior": posterior}
    x, t, y = np.array([[1.0, 0.5], [0.3, -2.0], [1.0, 0.5]]), np.array([1.0, -2.0, 0.0]), np.array([0.5, 7.0, 0.4])
    design = np.c_[x, t[:, None] * x]
    exact = stats.norm(design @ mean, np.sqrt(((design @ covariance) * design).sum(1) + 0.4**2 + (0.5 * t) ** 2))
    new = {"X": x, "t": t}
    np.testing.assert_allclose(pmg.predict(idata, model, new, random_seed=1)["mean"], exact.mean(), atol=0.1)
    density = pmg.log_predictive(idata, model, new, y, latent_draws=4, random_seed=1)
    assert (abs(density["log_density"] - exact.logpdf(y)) < 4 * density["mcse"]).all()
    with pytest.raises(NetworkError, match=r"'t', .* give its new rows as well"):
        pmg.predict(idata, model, x)
    # The effect given each draw is the difference that the treatment makes to the mean
    treated, not_treated = (
        pmg.function_space(idata, model, {"X": x, "t": np.full(3, value)})["output"] for value in (1.0, 0.0)
    )
    np.testing.assert_allclose(treated - not_treated, draws[..., 2:] @ x.T)


@pytest.mark.slow
def test_both_drivers_agree():
    model = model_of(two_networks)
    draws = [
        sample(model, 6000, tune=500, step=pmg.GibbsNN(model=model, sweeps_per_draw=4), var_names=["tau", "delta"])
        for sample in (pm_sample, pmg_sample)
    ]
    series = []
    for idata in draws:
        posterior = idata["posterior"]
        series.append(
            {f"tau {i}": posterior["tau"].values[..., i] for i in (0, 2)}
            | {"mean": (posterior["tau"].values * T).mean(-1), "delta": np.log(posterior["delta"].values)}
        )
    check_same_distribution(*series)


@pytest.fixture(scope="module")
def few_draws():
    model = model_of(two_networks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model, pm_sample(model, 20, tune=4, var_names=pmg.without_latents(model))


def test_what_reads_a_model_knows_it(few_draws):
    model, idata = few_draws
    known = {"W1", "W2", "b2", "W1_tau", "W2_tau", "c_tau", "delta"}
    assert set(pmg.without_latents(model)) == known
    with pytest.raises(NetworkError, match="several networks, with first weights 'W1', 'W1_tau'"):
        read_network(model)
    with pytest.raises(NetworkError, match="The network of 'tau' is one term of the mean of 'y', beside others"):
        read_network(model_of(effect_alone))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "delta" in pmg.summary(idata, model).index


def test_draws_of_another_effect_are_refused(few_draws):
    (_, idata), other = few_draws, model_of(lambda: two_networks(noise=0.1))
    with pytest.raises(ValueError, match="a model with another noise"):
        pmg.predict(idata, other)


def test_chains_are_annealed():
    """A fit would have to explain the data by one of the networks. The last sweeps are those of the model."""
    with pm.Model() as model:
        pm.Normal("y", hidden(noise=0.01) + T * effect(noise=0.01), 0.01, observed=Y)
    networks = read_networks(model)
    assert not any(map(can_be_fitted, networks))
    assert all(map(can_be_annealed, networks))
    step = pmg.GibbsNN(model=model, **FAST, **LEAN)
    assert not can_be_fitted(read_networks(model_of(effect_alone))[0])
    idata = pm_sample(model, 5, step, tune=50, chains=1)
    last = {v.name: idata["posterior"][v.name].values[0, -1] for v in model.free_RVs}
    np.testing.assert_allclose(
        idata["sample_stats"]["lp"].values[0, -1], model.compile_logp(mode="AS_WRITTEN")(last), rtol=1e-8
    )

"""Data with errors of their own around the last latent: how they are read, their conditional, and the sweep."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.likelihoods.measurement import MeasurementLikelihood
from pymc_gibbsnn.networks.likelihoods.student_t import StudentTLikelihood
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.starts.fitted_start import can_be_fitted, fitted_start
from tests.helpers import MOSTLY_PYTHON, compile_draw, pm_sample, value
from tests.samplers.test_gibbs import NUMBA, check_geweke

N, D = 6, 2
RNG = np.random.default_rng(0)
X, Y, ERRORS = RNG.normal(size=(N, D)), RNG.normal(size=N), RNG.uniform(0.5, 3, size=N)
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}


def network(scale, y=Y, degrees=None, units=None):
    """A network whose data have the scale ``scale(s)`` around the last latent, with s² a learned variance."""
    with pm.Model() as model:
        sigma = scale(pt.sqrt(pm.InverseGamma("delta", 3, 2)))
        y = pm.Data("y_data", y)
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", X @ pm.Normal("W1", 0, 1, shape=(2, D)).T, 1), 0), 1)
        W2 = pm.Normal("W2", 0, 0.7, shape=2 if units is None else (2, units))
        Z3 = pm.Normal("Z3", A2 @ W2, pt.sqrt(pm.InverseGamma("v", 3, 2)))
        if degrees is None:
            pm.Normal("y", Z3, sigma, observed=y)
        else:
            pm.StudentT("y", degrees, Z3, sigma=sigma, observed=y)
    return model


# How they are read


@pytest.mark.parametrize(
    ("scale", "known", "learned"),
    [
        (lambda s: s * ERRORS, ERRORS, True),
        (lambda s: 3 * ERRORS * (s / 2), 3 * ERRORS / 2, True),
        (lambda s: np.array([3, 100, 40, 1, 2, 9], "int8") * s / np.int8(3), np.array([3, 100, 40, 1, 2, 9]) / 3, True),
        (lambda s: pm.Data("e", ERRORS) * 60 * 60 * s, 3600 * ERRORS, True),  # 60 is kept in 8 bits
        (lambda s: ERRORS / (1 / s), ERRORS, True),
        (lambda s: pt.sqrt(s**2 * ERRORS**2), ERRORS, True),
        (lambda s: (abs(pm.Data("e", -ERRORS)) * s) ** 1.0, ERRORS, True),
        (lambda s: 1 / pt.sqrt(3.0 / (s * ERRORS) ** 2), ERRORS / 3**0.5, True),  # 3.0 is kept in 32 bits
        (lambda s: (s * ERRORS) ** pt.as_tensor(np.ones((1, 1))).squeeze(), ERRORS, True),
        (lambda s: pt.sqrt(pt.as_tensor(-ERRORS) * -(s**2)), ERRORS**0.5, False),
        (lambda s: s, np.ones(N), True),
        (lambda s: pt.sqrt(s**2 + ERRORS**2), np.hypot(1, ERRORS), False),
        (lambda s: ERRORS**s, ERRORS, False),
    ],
)
def test_a_learned_variance_in_the_scale_is_drawn_if_it_is_a_factor(scale, known, learned):
    model = network(scale)
    found = read_network(model)
    assert isinstance(found.observation, MeasurementLikelihood)
    assert {one.name for one in found.variances} == ({"v", "delta"} if learned else {"v"})
    likelihood = found.at({model.rvs_to_values[model["delta"]]: pt.constant(np.array(0.0))}).observation  # s² = 1
    scales = value(pt.sqrt(likelihood.noise)) * (1 if likelihood.factors is None else value(likelihood.factors)[:, 0])
    np.testing.assert_allclose(np.broadcast_to(scales, N), known, rtol=1e-12)


def test_a_learned_precision_of_measurements_is_drawn():
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=D), 0.5)
        pm.Normal("y", Z, tau=pm.Gamma("tau", 3, 2) / ERRORS**2, observed=Y)
    found = read_network(model)
    assert [one.name for one in found.variances] == ["tau"]
    np.testing.assert_allclose(value(found.observation.factors)[:, 0], ERRORS)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (lambda z: np.where(ERRORS > 1, np.nan, 1), "sigma of 'y' must be positive and finite; found nan"),
        (lambda z: ERRORS - 1, "sigma of 'y' must be positive and finite; found -0"),
        (lambda z: pt.exp(z), "sigma of 'y' must not depend on its location 'Z'"),
        (lambda z: ERRORS * pm.HalfFlat("s"), "prior of 's', in the scale of 'y', is improper"),
    ],
)
@pytest.mark.parametrize("likelihood", ["normal", "student"])
def test_what_is_refused(scale, message, likelihood):
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=D), 0.5)
        if likelihood == "normal":
            pm.Normal("y", Z, scale(Z), observed=Y)
        else:
            pm.StudentT("y", 4, Z, sigma=scale(Z), observed=Y)
    with pytest.raises(pmg.NetworkError, match=message):
        pmg.GibbsNN(model=model)


@pytest.mark.parametrize("rows", [4, 1])
def test_errors_for_other_rows_are_refused(rows):
    """A single one, too: it is known only when the program runs that it would have to be repeated."""
    with pm.Model() as model:
        errors = pm.Data("errors", ERRORS)
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=D), 0.5)
        pm.Normal("y", Z, errors, observed=Y)
    errors.set_value(ERRORS[:rows])
    with pytest.raises(pmg.NetworkError, match=rf"sigma of 'y' .* of shape \(6,\), .* found the shape \({rows},\)"):
        pmg.GibbsNN(model=model)


@pytest.mark.parametrize("centre", [lambda Z: Z[:, 0], lambda Z: Z[:, 0] + pm.Normal("b")])
def test_data_lie_around_a_latent_as_it_is(centre):
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=(D, 1)), 0.5)
        pm.Normal("y", centre(Z), ERRORS, observed=Y)
    with pytest.raises(pmg.NetworkError, match=r"a latent as it is, .* pm.Normal\('y', Z, sigma, observed=y\)"):
        pmg.GibbsNN(model=model)


def test_a_scale_for_each_row_of_the_last_layer_itself_asks_for_a_latent():
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W1", 0, 1, shape=(2, D)).T, 1)
        A = pm.Normal("A", pt.maximum(Z, 0), 1)
        pm.Normal("y", A @ pm.Normal("W2", 0, 1, shape=2), ERRORS, observed=Y)
    with pytest.raises(
        pmg.NetworkError, match=r"around a latent of their own, .* pm.Normal\('y', Z, sigma, observed=y\)"
    ):
        pmg.GibbsNN(model=model)


# Oracle 1: the conditional of Z given y, by quadrature


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("degrees", [None, 3.0])
def test_the_latent_against_quadrature(mode, degrees):
    """Half of the rows have another scale; each row is a chain of its own."""
    n, m, y, variance, base, factors = 4000, 1.0, 4.0, 2.0, 0.8, np.repeat([0.5, 2.0], 2000)
    z = pytensor.shared(np.full((n, 1), (m + y) / 2))
    arguments = "y", pt.constant(np.full(n, y)), pt.constant(base**2), pt.constant(factors[:, None])
    likelihood = (
        StudentTLikelihood(*arguments, degrees=pt.constant(degrees)) if degrees else MeasurementLikelihood(*arguments)
    )

    def build(generator):
        return likelihood.draw_latent(generator, z, pt.constant(np.full((n, 1), m)), pt.constant(variance))[:2]

    one_pass = compile_draw(build, mode)
    for _ in range(60 if degrees else 1):
        z.set_value(one_pass())
    grid = np.linspace(-15, 25, 8001)
    for half, scale in zip(np.split(z.get_value().ravel(), 2), (0.5 * base, 2 * base), strict=True):
        of_y = stats.t(degrees, grid, scale) if degrees else stats.norm(grid, scale)
        density = stats.norm.pdf(grid, m, variance**0.5) * of_y.pdf(y)
        cdf = integrate.cumulative_simpson(density, x=grid, initial=0)
        assert stats.kstest(half, lambda x, cdf=cdf: np.interp(x, grid, cdf / cdf[-1])).pvalue > 1e-3


# Oracle 2: the sweep


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [None, 4.0])
def test_geweke(degrees):
    check_geweke(network(lambda s: s * ERRORS, degrees=degrees), 6000, interweave=False, **NUMBA)


@pytest.mark.parametrize("degrees", [None, 4.0])
@pytest.mark.parametrize("units", [None, 2])
def test_log_density_of_the_sweep(degrees, units):
    """With two outputs, each has its scale."""
    y, factors = (Y, ERRORS) if units is None else (np.c_[Y, -Y], ERRORS[:2])
    model = network(lambda s: s * factors, y, degrees, units)
    step = pmg.GibbsNN(model=model, **FAST)
    point = model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point))
    noise = (y - point["Z3"]) / factors
    if degrees is None:
        np.testing.assert_allclose(found["noise_y"], (noise**2).mean() / np.exp(point["delta_log__"]))


def test_another_step_may_move_the_scale():
    """Rows whose scale has become small have a latent that is their data."""
    with pm.Model() as model:
        slope = pm.Normal("slope")
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=D), 0.5)
        pm.Normal("y", Z, pt.exp(slope * X[:, 0]), observed=Y)
        steps = [pmg.GibbsNN([model["W"], Z], **FAST), pm.Slice([slope], **FAST)]
        idata = pm.sample(
            5, tune=5, chains=1, step=steps, progressbar=False, compute_convergence_checks=False, random_seed=1
        )
    assert len(np.unique(idata["posterior"]["slope"])) > 3
    logp = model.compile_logp([model["W"], Z, model["y"]], mode="AS_WRITTEN")
    for slope in (200.0, -200.0):
        point, [found] = steps[0].step(model.initial_point() | {"slope": np.array(slope)})
        np.testing.assert_allclose(found["lp"], logp(point))
        np.testing.assert_array_equal(abs(point["Z"] - Y) < 1e-6, slope * X[:, 0] < 0)


# What users meet


def exact(x, errors, y, x_new, errors_new):
    """The distribution of new data in a linear regression with known errors and a prior of unit variance."""
    precision = np.eye(x.shape[1]) + x.T @ (x / errors[:, None] ** 2)
    mean = np.linalg.solve(precision, x.T @ (y / errors**2))
    return stats.norm(x_new @ mean, np.sqrt(np.sum(x_new * np.linalg.solve(precision, x_new.T).T, 1) + errors_new**2))


def test_regression_with_known_errors():
    """Draws and predictions are those of the closed form, if the noise of the latent is a part of the errors."""
    rng = np.random.default_rng(3)
    x, errors = rng.normal(size=(30, 2)), rng.uniform(0.5, 1.5, size=30)
    y = x @ [1.0, -2.0] + errors * rng.normal(size=30)
    with pm.Model() as model:
        x_data, own = pm.Data("X", x), pm.Data("errors", errors)
        Z = pm.Normal("Z", x_data @ pm.Normal("W", 0, 1, shape=2), 0.4)
        pm.Normal("y", Z, pt.sqrt(own**2 - 0.4**2), observed=pm.Data("y_data", y))
    idata = pm_sample(model, 2000, tune=100, step=pmg.GibbsNN(model=model), var_names=["W"])
    x_new, errors_new = rng.normal(size=(5, 2)), np.linspace(0.5, 3, 5)
    y_new, expected = x_new @ [1.0, -2.0], exact(x, errors, y, x_new, errors_new)
    new = {"X": x_new, "errors": errors_new}
    found = pmg.log_predictive(idata, model, new, y_new, random_seed=1)
    assert (found["latent_mcse"] == 0).all()
    np.testing.assert_allclose(found["log_density"], expected.logpdf(y_new), atol=0.02)
    predicted = pmg.predict(idata, model, new, random_seed=1)
    np.testing.assert_allclose(predicted["mean"], expected.mean(), atol=0.1)
    with pytest.raises(pmg.NetworkError, match=r"'errors', .* give its new rows as well"):
        pmg.predict(idata, model, x_new)
    small = {"X": x_new, "errors": np.array([1, 1, 1, 1, 0.3])}  # less than the noise of the latent
    with pytest.raises(pmg.NetworkError, match=r"parameter of 'y' is NaN .* root or the logarithm of a negative"):
        pmg.log_predictive(idata, model, small, y_new)


@pytest.mark.parametrize("degrees", [None, 4.0])
def test_log_predictive_of_several_outputs(degrees):
    """The latents are integrated out by quadrature, each number of the data with its own scale."""
    errors, y = np.c_[ERRORS, ERRORS[::-1]], np.c_[Y, 2 * Y]
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=(D, 2)), 0.5)
        if degrees is None:
            pm.Normal("y", Z, errors, observed=y)
        else:
            pm.StudentT("y", degrees, Z, sigma=errors, observed=y)
    idata = pm_sample(model, 3, tune=3, **FAST)
    found = pmg.log_predictive(idata, model, random_seed=1)
    z = np.linspace(-30, 30, 20001)[:, None, None]
    around_z = stats.norm(z, errors) if degrees is None else stats.t(degrees, z, errors)
    means = X @ idata["posterior"]["W"].values.reshape(-1, D, 2)
    densities = [
        integrate.simpson(stats.norm.pdf(z, mean, 0.5) * around_z.pdf(y), x=z, axis=0).prod(1) for mean in means
    ]
    assert (found["latent_mcse"] == 0).all()
    np.testing.assert_allclose(found["log_density"], np.log(np.mean(densities, axis=0)), rtol=1e-8)


@pytest.mark.parametrize("degrees", [None, 4.0])
def test_chains_start_where_data_with_small_errors_are_explained(degrees):
    """Errors of a third of the rows are a hundred times those of the others; the fit knows which they are."""
    study = pmg.teacher_student((3, 4, 1), n=200, n_test=5, noise=0.1, noisy=False, random_seed=1)
    rng, errors = np.random.default_rng(2), np.where(np.arange(200) % 3, 0.1, 10.0)
    y = study.y + errors * rng.normal(size=200)
    with pm.Model() as model:
        b1, b2 = pm.Normal("b1", 0, 1, shape=4), pm.Normal("b2")
        Z2 = pm.Normal("Z2", study.X @ pm.Normal("W1", 0, 1, shape=(4, 3)).T + b1, 0.01)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), 0.01)
        Z3 = pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 1, shape=4) + b2, 0.05)
        sigma = errors * pt.sqrt(pm.InverseGamma("scale", 1, 1))
        if degrees is None:
            pm.Normal("y", Z3, sigma, observed=y)
        else:
            pm.StudentT("y", degrees, Z3, sigma=sigma, observed=y)
    found = read_network(model)
    assert can_be_fitted(found)
    new = fitted_start(found, model.initial_point(), np.random.default_rng(1))
    f = np.maximum(study.X @ new["W1"].T + new["b1"], 0) @ new["W2"] + new["b2"]
    left = y - f
    assert left[errors < 1].std() < 0.25
    assert 0.3 < np.exp(new["scale_log__"]) < 1.7


def test_equal_factors_are_fitted_as_one_number():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 2))
    y = np.maximum(x[:, 0], 0) + 0.3 * rng.normal(size=60)
    found = []
    for factor in (30.0, np.full(60, 30.0)):
        with pm.Model() as model:
            s = pt.sqrt(pm.InverseGamma("scale", 50, 0.01))
            A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", x @ pm.Normal("W1", 0, 1, shape=(3, 2)).T, 0.01), 0), 0.01)
            pm.Normal("y", pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 1, shape=3), s), factor * s, observed=y)
        found.append(fitted_start(read_network(model), model.initial_point(), np.random.default_rng(1)))
    for name, x in found[0].items():
        np.testing.assert_allclose(found[1][name], x, rtol=1e-6, err_msg=name)

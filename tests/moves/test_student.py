"""Data with heavy tails: the conditional of the last latent, the sweep, and what users meet."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves import joint_trajectory
from pymc_gibbsnn.networks.likelihoods import student_t
from pymc_gibbsnn.networks.likelihoods.student_t import StudentTLikelihood
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import MOSTLY_PYTHON, compile_draw, pm_sample
from tests.samplers.test_gibbs import NUMBA, check_geweke

N, D = 6, 2
X = np.random.default_rng(0).normal(size=(N, D))
Y = np.random.default_rng(1).normal(size=N)
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}


def network(degrees=4.0, learned=True, noise=1.0):
    with pm.Model() as model:
        y = pm.Data("y_data", Y)
        sigma = pt.sqrt(pm.InverseGamma("delta", 3, 2)) if learned else 0.7
        W1 = pm.Normal("W1", 0, 1, shape=(2, D))
        Z2 = pm.Normal("Z2", X @ W1.T, noise)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), noise)
        W2, b2 = pm.Normal("W2", 0, 0.7, shape=2), pm.Normal("b2", 0, 0.5)
        Z3 = pm.Normal("Z3", A2 @ W2 + b2, sigma)
        pm.StudentT("y", degrees, Z3, sigma=sigma, observed=y)
    return model


# Oracle 1: the conditional of Z given y, by quadrature


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_the_latent_against_quadrature(mode):
    """Each row is a chain of its own; y far from the mean has two places where Z may be."""
    m, variance, nu, scale = 1.0, 2.0, 3.0, 0.8
    y = np.repeat([0.5, 12.0], 4000)
    n = len(y)
    z = pytensor.shared((m + y[:, None]) / 2)
    likelihood = StudentTLikelihood("y", pt.constant(y), pt.constant(scale**2), degrees=pt.constant(nu))

    def build(generator):
        return likelihood.draw_latent(generator, z, pt.constant(np.full((n, 1), m)), pt.constant(variance))[:2]

    one_pass = compile_draw(build, mode)
    for _ in range(60):
        z.set_value(one_pass())
    grid = np.linspace(-15, 25, 8001)
    for one in np.unique(y):
        density = stats.norm.pdf(grid, m, variance**0.5) * stats.t.pdf(one, nu, grid, scale)
        cdf = integrate.cumulative_simpson(density, x=grid, initial=0)
        found = stats.kstest(z.get_value()[y == one, 0], lambda x, cdf=cdf: np.interp(x, grid, cdf / cdf[-1]))
        assert found.pvalue > 1e-3


def test_squares_are_of_the_new_latent():
    """With σ tiny, Z is y and the squares τ (y − Z)²/σ² are those of standard normals."""
    n = 20_000
    z = np.random.default_rng(0).normal(size=(n, 1))
    likelihood = StudentTLikelihood("y", pt.constant(z[:, 0]), pt.constant(1e-8), degrees=pt.constant(4.0))

    def build(generator):
        rng, _, squares = likelihood.draw_latent(generator, pt.constant(z), pt.constant(0 * z), pt.constant(1.0))
        return rng, squares

    assert abs(compile_draw(build)() / 1e-8 / n - 1) < 5 * np.sqrt(2 / n)


def test_the_density_with_the_latent_integrated_out():
    mean, sigma = np.array([[0.0, 0.0, 1.0, 0.0, 0.0]]), np.array([[0.5, 2.0, 0.1, 1e-3, 1.0]])
    y = np.array([0.1, 5.0, -40.0, 3.0, 1e4])
    for nu, scale in [(0.05, 0.7), (1.0, 0.3), (4.0, 1.0), (200.0, 2.0)]:
        parameters = [np.array([nu]), mean, np.array([scale])]
        found = StudentTLikelihood.log_probability(mean, sigma, y, None, parameters)[0]
        for m, s, one, density in zip(mean[0], sigma[0], y, found, strict=True):
            student = stats.t(nu, one - m, scale)

            def ratio(e, student=student, s=s, density=density):
                return stats.norm.pdf(e) * np.exp(student.logpdf(s * e) - density)

            exact, _ = integrate.quad(ratio, -12, 12, epsabs=1e-11, limit=500, points=[0])
            np.testing.assert_allclose(exact, 1, rtol=1e-6, err_msg=f"{nu}, {scale}, {one}")


@pytest.mark.parametrize("nu", [1e4, 1e6])
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0])
def test_the_density_at_many_degrees_of_freedom_is_that_of_a_normal(nu, scale):
    """Also where the noise of the latent is far larger, so that the precisions say nothing."""
    y = np.array([[0.0, 1.0, -3.0]])
    found = StudentTLikelihood.log_probability(0 * y, np.ones((1, 1)), y, None, [np.array([nu]), y, np.array([scale])])
    np.testing.assert_allclose(found, stats.norm.logpdf(y, scale=np.hypot(1, scale)), rtol=5 / nu)


@pytest.fixture
def integrals(monkeypatch):
    """How many integrals each call computes."""
    calls = []
    whole = student_t._log_integral
    monkeypatch.setattr(
        student_t, "_log_integral", lambda *parameters: calls.append(len(parameters[0])) or whole(*parameters)
    )
    return calls


@pytest.mark.parametrize("nu", [4.0, 30.0])
def test_densities_of_many_data_are_those_of_each(nu, integrals):
    """Where a table is read, and where it would not be exact: few degrees, and a latent of far more noise."""
    rng = np.random.default_rng(0)
    sigma, scale = np.array([[0.5], [0.5], [50.0]]), np.array([[0.4], [0.4], [1.0]])
    mean = rng.normal(size=(3, 4000))
    y = 3 * rng.standard_t(3, size=4000)
    y[:2] = 0, 2000
    parameters = [np.array([[nu]]), mean, scale]
    found = StudentTLikelihood.log_probability(mean, sigma, y, None, parameters)
    tabulated = sum(integrals)
    each = StudentTLikelihood.log_probability(mean, sigma + 0 * mean, y, None, parameters)
    np.testing.assert_allclose(found, each, rtol=0, atol=2e-6)
    assert tabulated == (2 * student_t.KNOTS if nu == 4 else student_t.KNOTS + student_t.KNOTS + 4000)


def test_data_whose_scales_differ_are_read_from_a_table_if_ratios_are_the_same(integrals):
    """As where noise has a scale in each row."""
    rng = np.random.default_rng(0)
    y, c = 3 * rng.standard_t(3, size=4000), np.exp(rng.normal(size=(2, 4000)))
    mean, parameters = rng.normal(size=(2, 4000)), [np.array([4.0]), y, 0.4 * c]
    found = StudentTLikelihood.log_probability(mean, 0.5 * c, y, None, parameters)
    assert integrals == [student_t.KNOTS] * 2
    for k in (0, 17, 3999):
        one = [np.array([4.0]), y, 0.4 * c[:, k : k + 1]]
        each = StudentTLikelihood.log_probability(mean[:, k : k + 1], 0.5 * c[:, k : k + 1], y[k : k + 1], None, one)
        np.testing.assert_allclose(found[:, k], each[:, 0], rtol=0, atol=2e-6)


def test_few_data_of_many_distributions_are_done_at_once(integrals):
    scale = np.linspace(0.1, 1, 50)[:, None]
    StudentTLikelihood.log_probability(np.zeros((50, 7)), scale, np.arange(7.0), None, [np.array([4.0]), scale, scale])
    assert integrals == [350]


def test_the_density_of_nothing_is_nothing():
    nothing = np.empty((0, 3))
    parameters = [np.array([4.0]), nothing, np.array([1.0])]
    assert StudentTLikelihood.log_probability(nothing, nothing, np.zeros(3), None, parameters).shape == (0, 3)


# Oracle 2: the sweep


@pytest.mark.slow
def test_geweke():
    check_geweke(network(), 6000, interweave=False, **NUMBA)


@pytest.mark.slow
def test_geweke_where_the_latent_and_hidden_units_have_learned_noise_of_their_own():
    """Moves with the latent integrated out see noise that is not its own alone, and must not draw that."""
    with pm.Model() as model:
        of_a, of_z3 = (pt.sqrt(pm.InverseGamma(name, 5, 4)) for name in ("of_a", "of_z3"))
        Z2 = pm.Normal("Z2", X @ pm.Normal("W1", 0, 1, shape=(2, D)).T, 1.0)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), of_a)
        Z3 = pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 0.7, shape=2), of_z3)
        pm.StudentT("y", np.float64(4), Z3, sigma=0.7, observed=pm.Data("y_data", Y))
    check_geweke(model, 8000, **NUMBA)


@pytest.mark.slow
def test_geweke_with_the_joint_move_of_all_weights(monkeypatch):
    """The move is for wider layers than this one."""
    monkeypatch.setattr(joint_trajectory, "FEWEST", 1)
    model = network()
    assert joint_trajectory.has_joint_trajectory(read_network(model))
    check_geweke(model, 12_000, tune=500, **NUMBA)


def test_two_networks_below_one_latent_have_joint_moves_of_their_own():
    with pm.Model() as model:
        s, terms = pm.InverseGamma("delta", 3, 2) ** 0.5, []
        for name, units in (("a", 20), ("b", 25)):
            Z = pm.Normal(f"Z2{name}", X @ pm.Normal(f"W1{name}", 0, 1, shape=(units, D)).T, 0.5)
            terms.append(pm.Normal(f"A2{name}", pt.maximum(Z, 0), 0.5) @ pm.Normal(f"W2{name}", 0, 0.2, shape=units))
        pm.StudentT("y", 4.0, pm.Normal("Z3", terms[0] + terms[1], s), sigma=s, observed=Y)
    step, point = pmg.GibbsNN(model=model, **FAST), model.initial_point()
    for _ in range(2):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point))
    assert {"acceptance_Z3_W2a", "acceptance_Z3_W2b"} <= found.keys()


def test_log_density_of_the_sweep():
    model = network()
    step = pmg.GibbsNN(model=model, **FAST)
    point = model.initial_point()
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point))
    assert {"noise_Z3", "noise_y"} <= found.keys()


def test_another_step_may_move_the_degrees_of_freedom():
    with pm.Model() as model:
        nu = pm.Gamma("nu", 4, 1)
        W = pm.Normal("W", 0, 1, shape=D)
        Z = pm.Normal("Z", X @ W, 0.5)
        pm.StudentT("y", nu, Z, sigma=pm.HalfNormal("sigma", 1), observed=Y)
        steps = [pmg.GibbsNN([W, Z], **FAST), pm.Slice([model["nu"]], **FAST), pm.Slice([model["sigma"]], **FAST)]
        idata = pm.sample(
            5, tune=5, chains=1, step=steps, progressbar=False, compute_convergence_checks=False, random_seed=1
        )
    assert len(np.unique(idata["posterior"]["nu"])) > 3


# What users meet


@pytest.mark.slow
def test_outliers_pull_less():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 1))
    y = np.maximum(X[:, 0], 0) + 0.1 * rng.normal(size=60)
    y[:6] += 8
    model = pmg.mlp(X, y, 4, likelihood="student", noise="learned", prior=None)
    step = pmg.GibbsNN(interweave=False, scale_move=False, model=model)
    names = [rv.name for rv in model.free_RVs if rv.name[0] in "Wbv"]
    idata = pm_sample(model, 300, tune=300, step=step, var_names=names)
    assert float(idata["posterior"]["variance_y"].mean()) < 0.25
    found = pmg.predict(idata, model, X[:6], random_seed=1)
    assert np.abs(found["mean"] - np.maximum(X[:6, 0], 0)).max() < 1
    density = pmg.log_predictive(idata, model, X, y, random_seed=1)
    assert np.isfinite(density["log_density"]).all()
    assert density["log_density"][:6].max() < density["log_density"][6:].min()
    pmg.log_predictive(idata, model, random_seed=1)
    assert np.isfinite(az.loo(idata).elpd if hasattr(az.loo(idata), "elpd") else az.loo(idata).elpd_loo)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda Z: pm.StudentT("y", 4, Z + 1, sigma=1, observed=Y), "carries no noise: .* observe pm.StudentT"),
        (
            lambda Z: pm.StudentT("y", 4, Z, sigma=pt.exp(Z), observed=Y),
            "sigma of 'y' must not depend on its location 'Z'",
        ),
        (lambda Z: pm.StudentT("y", 4, Z, sigma=-1, observed=Y), "sigma of 'y' must be positive"),
        (lambda Z: pm.StudentT("y", 0, Z, sigma=1, observed=Y), "nu of 'y' must be positive"),
        (lambda Z: pm.StudentT("y", np.ones(N), Z, sigma=1, observed=Y), "nu of 'y'.* must be one number"),
        (lambda Z: pm.StudentT("y", 4, Z, sigma=1, observed=np.where(Y > 0, np.inf, 0)), "'y'"),
    ],
)
def test_what_is_refused(build, message):
    with pm.Model() as model:
        Z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=D), 0.5)
        build(Z)
    with pytest.raises(pmg.NetworkError, match=message):
        pmg.GibbsNN(model=model)

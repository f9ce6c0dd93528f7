"""Class labels: their likelihoods, the conditional of the last latent, and what users meet."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.networks.likelihoods.argmax_label import ArgmaxLikelihood
from pymc_gibbsnn.networks.likelihoods.sign_label import SignLikelihood
from tests.helpers import LEAN, MODES, MOSTLY_PYTHON, check_mean, compile_draw, pm_sample, slow, slow_but

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
Y = np.arange(30) % 3
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


def test_log_density_of_labels():
    z = np.array([[0.0, 2, 1], [0, 0, 0], [3, 1, 2]])
    logp = pm.logp(pmg.ArgmaxLabel.dist(z), np.array([1, 2, 1])).eval()
    np.testing.assert_array_equal(logp, [0, 0, -np.inf])
    logp = pm.logp(pmg.ArgmaxLabel.dist(z), np.array([-1, 3, 0])).eval()
    np.testing.assert_array_equal(logp, [-np.inf, -np.inf, 0])
    logp = pm.logp(pmg.SignLabel.dist([0.5, -0.5, 0.0, 0.5, 1.0]), np.array([1, 1, 0, 0, 2])).eval()
    np.testing.assert_array_equal(logp, [0, -np.inf, 0, -np.inf, -np.inf])


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
def test_labels_are_drawn(mode):
    mode = compilation_mode(mode)
    z = np.array([[0.0, 2, 1], [3, 1, 2]])
    np.testing.assert_array_equal(pm.draw(pmg.ArgmaxLabel.dist(z), mode=mode), [1, 0])
    np.testing.assert_array_equal(pm.draw(pmg.SignLabel.dist(z - 1.5), mode=mode), [[0, 1, 0], [1, 0, 1]])
    many = pm.draw(pmg.ArgmaxLabel.dist(z, shape=(5, 2)), mode="AS_WRITTEN")
    np.testing.assert_array_equal(many, [[1, 0]] * 5)


# Oracle 8


@pytest.mark.parametrize("mode", slow_but(["NUMBA"], MODES))
def test_two_classes_against_quadrature(mode):
    """Rows are chains of their own, started in a corner and run for 30 passes."""
    n, m, noise = 20_000, np.array([0.7, -0.4]), 0.5
    labels = np.zeros(n, dtype=int)  # z_0 > z_1

    state = pytensor.shared(np.tile([1.0, -1.0], (n, 1)))

    def build(generator):
        means = pt.constant(np.tile(m, (n, 1)))
        return ArgmaxLikelihood("y", pt.constant(labels)).draw_latent(generator, state, means, pt.constant(noise))[:2]

    one_pass = compile_draw(build, mode)
    for _ in range(30):
        state.set_value(one_pass())
    z = state.get_value()
    assert (z[:, 0] > z[:, 1]).all()
    prior = stats.norm(m, noise**0.5)

    def expectation(f):
        def integrand(z1, z0):
            return f(z0, z1) * np.prod(prior.pdf([z0, z1]))

        return integrate.dblquad(integrand, -4, 5, -5, lambda z0: z0)[0]

    mass = expectation(lambda z0, z1: 1.0)
    for f in (lambda a, b: a, lambda a, b: b, lambda a, b: a * b, lambda a, b: b**2):
        check_mean(f(z[:, 0], z[:, 1]), expectation(f) / mass)


@pytest.mark.parametrize("mode", MODES)
def test_binary_labels_against_the_truncated_normal(mode):
    n, noise = 20_000, 0.5
    labels = np.tile([0, 1], n // 2)
    likelihood, m = SignLikelihood("y", pt.constant(labels)), pt.constant(np.full(n, 0.4))
    z = compile_draw(lambda generator: likelihood.draw_latent(generator, m, m, pt.constant(noise))[:2], mode)()
    sd = noise**0.5
    assert stats.kstest(z[labels == 1], stats.truncnorm(-0.4 / sd, np.inf, 0.4, sd).cdf).pvalue > 1e-3
    assert stats.kstest(z[labels == 0], stats.truncnorm(-np.inf, -0.4 / sd, 0.4, sd).cdf).pvalue > 1e-3


# Oracle 17: the probit model with the last latent integrated out, by NUTS


def test_probit_regression_by_pm_sample_against_quadrature():
    """In Numba, where users run it."""
    x, s = np.random.default_rng(6).normal(size=(8, 1)), 0.7
    y = (x[:, 0] > 0.3).astype(int)
    model = pmg.mlp(x, y, [], noise=s, likelihood="probit", prior=None)
    step = pmg.GibbsNN(model=model, sweeps_per_draw=12, compile_kwargs={"mode": "NUMBA"}, **LEAN)
    idata = pm_sample(model, 800, step, tune=20)
    w, b = np.meshgrid(*[np.linspace(-6, 6, 241)] * 2)
    z = (2 * y - 1) * (w[..., None] * x[:, 0] + b[..., None])
    weights = stats.norm.pdf(w) * stats.norm.pdf(b) * stats.norm.cdf(z / s).prod(-1)
    drawn = [idata["posterior"][name].values.reshape(2, -1) for name in ("W1", "b1")]
    for f in (lambda w, b: w, lambda w, b: b, lambda w, b: w**2, lambda w, b: w * b, lambda w, b: b**2):
        check_mean(f(*drawn), np.average(f(w, b), weights=weights))


@pytest.mark.slow
def test_nuts_on_binary_probit():
    x = np.random.default_rng(6).normal(size=(8, 1))
    y, s = (x[:, 0] > 0.3).astype(int), 0.7
    with pm.Model():
        W1, b1 = pm.Normal("W1", 0, 1, shape=(2, 1)), pm.Normal("b1", 0, 1, shape=2)
        Z2 = pm.Normal("Z2", x @ W1.T + b1, s)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), s)
        W2, b2 = pm.Normal("W2", 0, 2**-0.5, shape=2), pm.Normal("b2", 0, 2**-0.5)
        pm.Bernoulli("y", pm.math.invprobit((A2 @ W2 + b2) / s), observed=y)
        nuts = pm.sample(1500, tune=500, chains=2, cores=2, progressbar=False, random_seed=1)
    with pmg.mlp(x, y, 2, noise=s, likelihood="probit", prior=None):
        step = pmg.GibbsNN()
        ours = pm.sample(30_000, tune=200, chains=2, cores=2, step=step, progressbar=False, random_seed=2)
        points = np.linspace(-1.5, 1.5, 4)[:, None]
        found = pmg.function_space(ours, X_new=points)["output"].values
        expected = pmg.function_space(nuts, X_new=points)["output"].values
    for k in range(len(points)):
        for power in (1, 2):
            theirs = expected[..., k] ** power
            mcse = theirs.std() / np.sqrt(float(az.ess(theirs, method="mean")))
            check_mean(found[..., k] ** power, theirs.mean(), f"output {k}^{power}", mcse)


# What users meet


@pytest.mark.slow
def test_a_classifier_of_three_classes_learns():
    centres = np.array([[2, 0], [-2, 1], [0, -2]])
    x = np.random.default_rng(0).normal(size=(150, 2)) * 0.5 + centres[np.arange(150) % 3]
    y = np.arange(150) % 3
    model = pmg.mlp(x, y, 4, noise=0.5, likelihood="probit", prior=None)
    with model:
        idata = pm.sample(300, tune=200, step=pmg.GibbsNN(), chains=1, var_names=["W1", "b1", "W2", "b2"], **QUIET)
        output = pmg.function_space(idata)["output"]
        assert output.dims == ("chain", "draw", "point", "component")
        assert "output" in pmg.function_space(idata).data_vars  # what az.summary reads
        assert (output.values.mean((0, 1)).argmax(1) == y).mean() > 0.95
        pm.set_data({"X": centres, "y_data": np.zeros(3, int)})
        predicted = pm.sample_posterior_predictive(idata, **{k: QUIET[k] for k in ("progressbar", "random_seed")})
    shares = predicted["posterior_predictive"]["y"].values[0]
    assert [(shares[:, k] == k).mean() > 0.9 for k in range(3)] == [True] * 3


def test_two_classes_make_a_single_output():
    model = pmg.mlp(X, Y % 2, 3, likelihood="probit", noise=0.1, prior=None)
    assert model["Z3"].type.ndim == 1
    assert isinstance(model["y"].owner.op, type(pmg.SignLabel.rv_op))
    point, [stats_] = pmg.GibbsNN(model=model, **FAST).step(model.initial_point())
    assert ((point["Z3"] > 0) == (Y % 2 == 1)).all()
    np.testing.assert_allclose(stats_["lp"], model.compile_logp(mode="AS_WRITTEN")(point), atol=1e-6)


def test_a_class_without_examples_is_allowed_if_it_is_named():
    pd = pytest.importorskip("pandas")
    labels = pd.Categorical(np.where(Y == 1, 3, Y), categories=range(4))
    model = pmg.mlp(X, labels, 3, noise=0.1, prior=None, likelihood="probit")
    point, _ = pmg.GibbsNN(model=model, **FAST).step(model.initial_point())
    assert point["Z3"].shape == (30, 4)


def test_several_binary_labels_of_one_network():
    y = np.c_[X[:, 0] > 0, X[:, 1] > 0].astype(int)
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, 1, shape=(3, 2))
        Z2 = pm.Normal("Z2", X @ W1.T, 0.5)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), 0.5)
        W2 = pm.Normal("W2", 0, 1, shape=(2, 3))
        pmg.SignLabel("y", pm.Normal("Z3", A2 @ W2.T, 0.5), observed=y)
    point, _ = pmg.GibbsNN(model=model, **FAST).step(model.initial_point())
    np.testing.assert_array_equal(point["Z3"] > 0, y == 1)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["zero", "prior"])
def test_starts_agree_with_the_labels(kind, classes):
    model = pmg.mlp(X, Y % classes, 3, likelihood="probit", noise=0.1, prior=None)
    start = pmg.initial_values(model, kind, random_seed=0)
    assert np.isfinite(model.compile_logp(mode="AS_WRITTEN")(start))


def test_what_is_refused():
    for y, message in [
        (Y.astype(float), "integer labels"),
        (Y - 1, "count from 0"),
        (np.zeros(30, int), "at least two classes"),
        (np.c_[Y, Y], r"shape \(n,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            pmg.mlp(X, y, 3, likelihood="probit", noise=0.1, prior=None)
    model = pmg.mlp(X, Y, 3, likelihood="probit", noise=0.1, prior=None)
    step = pmg.GibbsNN(model=model, **FAST)
    model.set_data("y_data", np.where(Y == 0, 3, Y))
    with pytest.raises(pmg.NetworkError, match=r"the data of 'y' must hold labels, integers from 0 to 2; found \[3\]"):
        step.set_rng(0)


def test_labels_of_a_noiseless_output_are_refused():
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, 1, shape=(3, 2))
        pmg.ArgmaxLabel("y", X @ W1.T, observed=Y)
    with pytest.raises(pmg.NetworkError, match=r"'y' are of .* which carries no noise"):
        pmg.GibbsNN(model=model, **FAST)


def test_the_largest_of_one_output_is_refused():
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, 1, shape=(1, 2))
        pmg.ArgmaxLabel("y", pm.Normal("Z2", X @ W1.T, 1), observed=0 * Y)
    with pytest.raises(pmg.NetworkError, match=r"'y' is the number of the largest of one output, .* pmg.SignLabel"):
        pmg.GibbsNN(model=model, **FAST)


@pytest.mark.parametrize("classes", [slow(2), 3])
def test_class_probabilities_of_a_noisy_network(classes):
    """Shares of labels, as posterior prediction by PyMC gives them."""
    with pmg.mlp(X, Y % classes, 3, noise=0.4, likelihood="probit", prior=None) as model:
        weights = pm.draw([model[name] for name in ("W1", "b1", "W2", "b2")], draws=1, random_seed=2)
        names = ["W1", "b1", "W2", "b2"]
        posterior = az.convert_to_dataset(
            {name: np.repeat(w[None, None], 4000, axis=1) for name, w in zip(names, weights, strict=True)}
        )
        p = pmg.class_probabilities({"posterior": posterior}, X_new=X[:5], random_seed=1)
        assert p.dims == ("chain", "point", "class")
        pm.set_data({"X": X[:5]})
        np.testing.assert_array_equal(pmg.class_probabilities({"posterior": posterior}, random_seed=1), p)
        pm.set_data({"X": X})
        fixed = pm.do(model, dict(zip(names, weights, strict=True)))
        labels = pm.draw(fixed["y"], draws=4000, random_seed=3, mode="AS_WRITTEN")[:, :5]
    expected = np.stack([(labels == k).mean(0) for k in range(classes)], -1)
    error = np.sqrt(2 * expected * (1 - expected) / 4000) + 1e-3
    assert (np.abs(p.values[0] - expected) < 5 * error).all()


def test_class_probabilities_need_labels():
    with pmg.mlp(X, X[:, 0], 3, noise=0.1, prior=None), pytest.raises(pmg.NetworkError, match="has no classes"):
        pmg.class_probabilities({"posterior": None})

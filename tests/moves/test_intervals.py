"""Data that tell of the last latent through intervals: censored, truncated, ordered grades."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats
from scipy.special import expit

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.likelihoods.censored import CensoredLikelihood
from pymc_gibbsnn.networks.likelihoods.factorised import FactorisedLikelihood
from pymc_gibbsnn.networks.likelihoods.hidden_target import HiddenTarget
from pymc_gibbsnn.networks.likelihoods.ordered_logistic import OrderedLogisticLikelihood
from pymc_gibbsnn.networks.likelihoods.ordered_probit import OrderedProbitLikelihood
from pymc_gibbsnn.networks.likelihoods.truncated import TruncatedLikelihood
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.starts.fitted_start import can_be_fitted
from tests.helpers import LEAN, MOSTLY_PYTHON, compile_draw, pm_sample, pmg_sample, slow, slow_but
from tests.samplers.test_gibbs import NUMBA, check_geweke, gibbs

N, D = 6, 2
X = np.random.default_rng(0).normal(size=(N, D))
Y = np.array([0.3, -0.7, 1.0, 0.9, -1.0, 0.2])
UPPER = np.array([0.3, 1.0, 1.0, 2.0, np.inf, 0.5])
GRADES = np.array([0, 1, 2, 1, 0, 2])
ORDERED = pm.distributions.transforms.ordered


def cutpoints():
    return pm.Normal("cutpoints", [-0.5, 0.8], 1, transform=ORDERED)


def variance(name="v"):
    return pm.InverseGamma(name, 3, 2)


FORMS = {
    "censored above": lambda z, y: pm.Censored("y", pm.Normal.dist(z, 0.7), lower=None, upper=1.0, observed=y),
    "censored by row": lambda z, y: pm.Censored("y", pm.Normal.dist(z, 0.7), lower=-1, upper=UPPER, observed=y),
    "censored, learned": lambda z, y: pm.Censored(
        "y", pm.Normal.dist(z, pt.sqrt(variance()) * np.linspace(1, 2, N)), lower=-1, upper=None, observed=y
    ),
    "truncated": lambda z, y: pm.Truncated("y", pm.Normal.dist(z, 0.7), lower=-1.5, upper=None, observed=y),
    "truncated normal": lambda z, y: pm.TruncatedNormal("y", z, np.linspace(1, 2, N), lower=-2, upper=2, observed=y),
    "truncated, learned": lambda z, y: pm.Truncated(
        "y", pm.Normal.dist(z, pt.sqrt(variance())), lower=-2, upper=UPPER + 1, observed=y
    ),
    "probit": lambda z, y: pm.OrderedProbit("y", eta=z, cutpoints=[-0.5, 0.5], observed=y),
    "probit, learned": lambda z, y: pm.OrderedProbit(
        "y", z, cutpoints(), sigma=pm.HalfNormal("s", 1), compute_p=False, observed=y
    ),
    "probit by row": lambda z, y: pm.OrderedProbit("y", z, np.array([-0.5, 0.5]), np.linspace(1, 2, N), observed=y),
    "logistic": lambda z, y: pm.OrderedLogistic("y", eta=z, cutpoints=np.array([-0.5, 0.5]), observed=y),
    "logistic, learned": lambda z, y: pm.OrderedLogistic("y", z, cutpoints(), compute_p=False, observed=y),
}
KINDS = {
    "censored": CensoredLikelihood,
    "truncated": TruncatedLikelihood,
    "probit": OrderedProbitLikelihood,
    "logistic": OrderedLogisticLikelihood,
}


def kind_of(form):
    return KINDS[form.split(",")[0].split()[0]]


def network(form, noise=1.0):
    kind = kind_of(form)
    with pm.Model() as model:
        x, y = pm.Data("X", X), pm.Data("y_data", GRADES if kind.has_classes else Y)
        if kind is CensoredLikelihood and form == "censored by row":
            y.set_value(np.minimum(Y, UPPER))
        W1 = pm.Normal("W1", 0, 1, shape=(2, D))
        Z2 = pm.Normal("Z2", x @ W1.T, noise)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), noise)
        W2, b2 = pm.Normal("W2", 0, 0.7, shape=2), pm.Normal("b2", 0, 0.5)
        FORMS[form](pm.Normal("Z3", A2 @ W2 + b2, noise), y)
    return model


# Oracle 1: the conditional of Z given y, by quadrature


M, VARIANCE, SCALE, CUTS = 1.0, 2.0, 0.8, np.array([-1.0, 0.5, 3.0])


def fields(kind, y):
    """Data y, and the fields of their likelihood."""
    y, column = pt.constant(y), pt.constant(np.where(y == 4.5, 4.5, 2.0)[:, None])
    if kind is CensoredLikelihood:
        return kind("y", y, pt.constant(SCALE**2), lower=pt.constant(-1.0), upper=column)
    if kind is TruncatedLikelihood:
        return kind("y", y, pt.constant(SCALE**2), pt.constant(-1.0), column)
    if kind is OrderedProbitLikelihood:
        return kind("y", y, pt.constant(SCALE**2), cutpoints=pt.constant(CUTS))
    return kind("y", y, cutpoints=pt.constant(CUTS))


def density(kind, y, z):
    """p(y | z), by SciPy."""
    upper = 4.5 if y == 4.5 else 2.0
    if kind is CensoredLikelihood:
        tails = {-1.0: stats.norm.cdf(-1, z, SCALE), upper: stats.norm.sf(upper, z, SCALE)}
        return tails.get(y, stats.norm.pdf(y, z, SCALE))
    if kind is TruncatedLikelihood:
        return stats.truncnorm.pdf(y, (-1 - z) / SCALE, (upper - z) / SCALE, z, SCALE)
    lower, upper = np.array([-np.inf, *CUTS, np.inf])[y : y + 2]
    law = stats.norm(z, SCALE) if kind is OrderedProbitLikelihood else stats.logistic(z)
    return np.where(z < lower, law.sf(lower) - law.sf(upper), law.cdf(upper) - law.cdf(lower))


DATA = {
    CensoredLikelihood: [-1.0, 0.5, 2.0, 4.5],
    TruncatedLikelihood: [-0.9, 0.3, 1.9],
    OrderedProbitLikelihood: [0, 1, 2, 3],
    OrderedLogisticLikelihood: [0, 1, 2, 3],
}


@pytest.mark.parametrize("mode", MOSTLY_PYTHON)
@pytest.mark.parametrize("kind", DATA)
def test_the_latent_against_quadrature(kind, mode):
    """One draw is enough where Z is drawn; Metropolis steps keep its distribution, from quantiles of it."""
    y, grid, rng = np.repeat(DATA[kind], 4000), np.linspace(-9, 12, 8001), np.random.default_rng(6)
    is_drawn = issubclass(kind, HiddenTarget)
    laws, z = {}, np.full((len(y), 1), M)
    for one in DATA[kind]:
        masses = stats.norm.pdf(grid, M, VARIANCE**0.5) * density(kind, one, grid)
        below = integrate.cumulative_simpson(np.nan_to_num(masses), x=grid, initial=0)
        laws[one] = below / below[-1]
        if not is_drawn:
            z[y == one, 0] = np.interp(rng.random(4000), laws[one], grid)
    likelihood = fields(kind, y)

    def moves(generator):
        new = pt.constant(z)
        for _ in range(1 if is_drawn else 3):
            mean, noise = pt.constant(np.full((len(y), 1), M)), pt.constant(VARIANCE)
            generator, new, _ = likelihood.draw_latent(generator, new, mean, noise)
        return generator, new

    new = compile_draw(moves, mode)()
    for one, law in laws.items():
        assert (new != z)[y == one].mean() > 0.5
        found = stats.kstest(new[y == one, 0], lambda x, law=law: np.interp(x, grid, law))
        assert found.pvalue > 1e-3, one


@pytest.mark.parametrize("kind", DATA)
def test_log_densities(kind):
    z = np.linspace(-2, 3, 9)
    for one in DATA[kind]:
        found = fields(kind, np.repeat(one, len(z))).log_densities(pt.constant(z[:, None])).eval()
        np.testing.assert_allclose(found[:, 0], np.log(density(kind, one, z)), rtol=1e-9)


@pytest.mark.parametrize("kind", [CensoredLikelihood, OrderedProbitLikelihood])
def test_squares_are_of_the_target(kind):
    """Where nothing is known of Z, y* − Z is drawn from its prior: the mean square over all y is σ²."""
    n = 20_000
    rng = np.random.default_rng(0)
    target = M + np.sqrt(VARIANCE + SCALE**2) * rng.normal(size=n)
    y = np.clip(target, -1, 2) if kind is CensoredLikelihood else np.searchsorted(CUTS, target)
    mean = pt.constant(np.full((n, 1), M))
    likelihood = fields(kind, y)

    def build(generator):
        generator, _, squares = likelihood.draw_latent(generator, mean, mean, pt.constant(VARIANCE))
        return generator, squares

    assert abs(compile_draw(build)() / n / SCALE**2 - 1) < 5 * np.sqrt(2 / n)


@pytest.mark.parametrize("kind", [CensoredLikelihood, OrderedProbitLikelihood])
def test_the_density_with_the_latent_integrated_out(kind):
    for m, s in [(1.0, 1.4), (0.0, 0.05), (-2.0, 5.0), (6.0, 0.7)]:
        y = np.array(DATA[kind])
        mean = np.full((1, len(y)), m)
        bounds = [np.array([[-1.0]]), np.where(y == 4.5, 4.5, 2.0)[None]]
        own, cuts = np.array([[SCALE]]), CUTS[None, None]
        parameters = {
            CensoredLikelihood: [mean, own, *bounds],
            OrderedProbitLikelihood: [mean, cuts, own],
        }[kind]
        found = kind.log_probability(mean, np.array([[s]]), y, None, parameters)[0]
        for one, log_p in zip(DATA[kind], found, strict=True):
            grid = np.linspace(-10, 10, 4001)
            exact = integrate.simpson(stats.norm.pdf(grid) * density(kind, one, m + s * grid), x=grid)
            np.testing.assert_allclose(log_p, np.log(exact), rtol=1e-6, err_msg=f"{one}, {m}, {s}")


# Oracle 2: the sweep


QUICK = {"censored, learned", "truncated normal", "logistic, learned"}


@pytest.mark.parametrize("form", slow_but(QUICK, FORMS))
def test_a_model_is_read_and_its_log_density_is_that_of_pymc(form):
    model = network(form)
    found = read_network(model)
    assert type(found.observation) is kind_of(form)
    assert [variance.name for variance in found.variances] == ["v"] * (form == "censored, learned")
    step, point = gibbs(model, **LEAN), model.initial_point()
    for _ in range(3):
        point, [statistics] = step.step(point)
    others = [rv for rv in model.free_RVs if model.rvs_to_values[rv] not in found.variables]
    of_others = model.compile_logp(vars=others, mode="AS_WRITTEN")(point) if others else 0
    np.testing.assert_allclose(statistics["lp"], model.compile_logp(mode="AS_WRITTEN")(point) - of_others)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["censored by row", "censored, learned", "truncated", "probit", "logistic"])
def test_geweke(form):
    check_geweke(network(form), 6000, interweave=False, **NUMBA)


# What users meet


def sampled(form, n=40):
    """A model of n rows, its posterior, and rows to predict."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, D))
    target = x[:, 0] + 0.3 * rng.normal(size=n)
    upper = np.where(np.arange(n) % 2, 0.5, 3.0)
    with pm.Model() as model:
        inputs = pm.Data("X", x)
        W1, b1 = pm.Normal("W1", 0, 1, shape=(3, D)), pm.Normal("b1", 0, 1, shape=3)
        Z2 = pm.Normal("Z2", inputs @ W1.T + b1, 0.3)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), 0.3)
        z = pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 1, shape=3) + pm.Normal("b2", 0, 1), 0.3)
        grades = np.searchsorted([-0.5, 0.5], target)
        if form == "censored":
            bound = pm.Data("upper", upper)
            pm.Censored("y", pm.Normal.dist(z, 0.3), lower=None, upper=bound, observed=np.minimum(target, upper))
        elif form == "truncated":
            pm.Truncated("y", pm.Normal.dist(z, 0.3), lower=-5, upper=None, observed=target)
        elif form == "probit":
            pm.OrderedProbit("y", eta=z, cutpoints=cutpoints(), sigma=0.5, observed=grades)
        else:
            pm.OrderedLogistic("y", eta=z, cutpoints=[-0.5, 0.5], observed=grades)
    names = [rv.name for rv in model.free_RVs if rv.name[0] in "Wbc"]
    step = gibbs(model, interweave=False)
    return model, pm_sample(model, 20, tune=40, step=step, chains=1, var_names=names), x, target


@pytest.mark.parametrize("form", ["censored", slow("truncated"), slow("probit"), slow("logistic")])
def test_sampling_and_prediction(form):
    model, idata, x, target = sampled(form)
    new = x[:8]
    ends = np.where(np.arange(8) % 2, target[:8] - 0.2, 3)
    given = {"X": new, "upper": ends} if form == "censored" else new
    found = pmg.predict(idata, model, given, random_seed=1)
    outputs = pmg.function_space(idata, model, X_new=x)["output"].mean(("chain", "draw"))
    assert form == "logistic" or np.corrcoef(outputs, target)[0, 1] > 0.8  # grades of which tell little
    assert outputs.dims == ("point",)
    assert "mean" in found or "probability" in found
    y = {"censored": np.minimum(target[:8], ends), "truncated": target[:8]}.get(form, np.arange(8) % 3)
    log_p = pmg.log_predictive(idata, model, given, y, latent_draws=1000, thin=10, random_seed=1)["log_likelihood"]
    brute = brute_force(form, idata, new, y, ends)
    np.testing.assert_allclose(log_p.values.reshape(brute.shape), brute, atol=0.1)


def brute_force(form, idata, x, y, upper):
    """log p(y | x, θ) of every tenth draw, with all latents drawn many times."""
    rng, posterior = np.random.default_rng(3), idata["posterior"]
    draws = [
        {name: posterior[name].values[c, d] for name in posterior.data_vars}
        for c in range(posterior.sizes["chain"])
        for d in range(0, posterior.sizes["draw"], 10)
    ]
    found = []
    for point in draws:
        size = (20_000, len(x))
        z = x @ point["W1"].T + point["b1"] + 0.3 * rng.normal(size=(*size, 3))
        a = np.maximum(z, 0) + 0.3 * rng.normal(size=z.shape)
        m = a @ point["W2"] + point["b2"]
        if form == "censored":
            log_p = np.where(
                y < upper, stats.norm.pdf(y, m, np.hypot(0.3, 0.3)), stats.norm.sf(y, m, np.hypot(0.3, 0.3))
            )
        else:
            z = m + 0.3 * rng.normal(size=m.shape)
            ends = np.array([-np.inf, *point.get("cutpoints", [-0.5, 0.5]), np.inf])
            if form == "truncated":
                log_p = stats.norm.pdf(y, z, 0.3) / stats.norm.sf(-5, z, 0.3)
            elif form == "probit":
                log_p = stats.norm.cdf(ends[y + 1], z, 0.5) - stats.norm.cdf(ends[y], z, 0.5)
            else:
                log_p = expit(ends[y + 1] - z) - expit(ends[y] - z)
        with np.errstate(divide="ignore"):
            found.append(np.log(log_p.mean(axis=0)))
    return np.array(found)


def around_a_latent(build):
    with pm.Model() as model:
        x = pm.Data("X", X)
        build(pm.Normal("Z", x @ pm.Normal("W", 0, 1, shape=D), 0.5))
    return model


def of_normal(z, **bounds):
    return pm.Censored("y", pm.Normal.dist(z, 1), **{"lower": None, "upper": None} | bounds, observed=Y)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda z: of_normal(z, upper=0.9), "'y' must lie between its bounds; found 1 in row 2, whose .* -inf and 0.9"),
        (lambda z: of_normal(z, lower=-0.7), "'y' must lie between its bounds; found -1 in row 4"),
        (lambda z: of_normal(z, upper=np.where(Y > 0.95, np.nan, 2)), "upper of 'y' must hold numbers"),
        (lambda z: of_normal(z, lower=2, upper=1), "lower of 'y' must be less than upper"),
        (lambda z: of_normal(z, upper=z), "bounds of 'y' must not depend on its location 'Z'"),
        (lambda z: of_normal(z, upper=pm.Data("u", np.ones(1))), r"upper of 'y' must be one number, .* shape \(1,\)"),
        (lambda z: of_normal(z + 1), r"'y' is Censored, .* around a latent, .* write pm.Censored\('y', pm.Normal.dist"),
        (
            lambda z: pm.Censored("y", pm.Normal.dist(z, -1), lower=None, upper=1, observed=Y),
            "sigma of 'y' must be positive",
        ),
        (
            lambda z: pm.Truncated("y", pm.Normal.dist(z, 1), lower=0, upper=None, observed=Y),
            "'y' must lie between its bounds; found -0.7 in row 1",
        ),
        (
            lambda z: pm.TruncatedNormal("y", z, np.linspace(1, 2, N) * pm.math.exp(z), lower=-2, observed=Y),
            "sigma of 'y' must not depend on its location 'Z'",
        ),
        (
            lambda z: pm.OrderedProbit("y", z, [0.0], observed=GRADES),
            r"'y' must hold labels, integers from 0 to 1; found \[2\]",
        ),
        (
            lambda z: pm.OrderedLogistic("y", z, [1.0, 0.0], observed=GRADES),
            r"cutpoints of 'y' must be finite numbers in rising order; found \[1. 0.\]",
        ),
        (
            lambda z: pm.OrderedLogistic("y", z, np.tile([0.0, 1.0], (N, 1)), observed=GRADES),
            "cutpoints of 'y' must be a vector, the same cutpoints for all data; found 2 axes",
        ),
        (
            lambda z: pm.OrderedProbit("y", z, [0.0, 1.0], sigma=-1, observed=GRADES),
            "sigma of 'y' must be positive",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(build, message):
    with pytest.raises(pmg.NetworkError, match=message):
        read_network(around_a_latent(build))


@pytest.mark.parametrize(
    "build",
    [
        lambda z: pm.Censored("y", pm.StudentT.dist(4, z, sigma=1), lower=None, upper=1, observed=Y),
        slow(lambda z: pm.Truncated("y", pm.Normal.dist(z + 1, 1), lower=-3, upper=None, observed=Y)),
        slow(lambda z: pm.OrderedProbit("y", z + 1, [0.0, 1.0], observed=GRADES)),
    ],
)
def test_other_forms_are_read_by_their_density(build):
    model = around_a_latent(build)
    assert isinstance(read_network(model).observation, FactorisedLikelihood)
    point, [statistics] = gibbs(model).step(model.initial_point())
    np.testing.assert_allclose(statistics["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-8)


def test_data_and_bounds_may_change():
    model = network("censored above")
    step = gibbs(model)
    model.set_data("y_data", Y + 1)
    with pytest.raises(pmg.NetworkError, match="'y' must lie between its bounds"):
        step.set_rng(0)


def test_a_chain_starts_at_a_fit_to_censored_data():
    assert can_be_fitted(read_network(network("censored above")))
    assert not can_be_fitted(read_network(network("probit")))
    assert not can_be_fitted(read_network(network("truncated")))


def test_mlp_of_grades():
    pd = pytest.importorskip("pandas")
    names = pd.Categorical(np.array(["poor", "fair", "good"])[GRADES], categories=["poor", "fair", "good"])
    model = pmg.mlp(X, names, 3, likelihood="ordered", prior=None)
    assert type(read_network(model).observation) is OrderedProbitLikelihood
    assert list(model.coords["class"]) == ["poor", "fair", "good"]
    assert [rv.name for rv in model.free_RVs][-2:] == ["Z3", "cutpoints_y"]
    assert not {"variance_Z3", "variance_y"} & set(model.named_vars)
    point, _ = gibbs(model, **LEAN).step(model.initial_point())
    assert np.isfinite(model.compile_logp(mode="AS_WRITTEN")(point))
    with pytest.raises(ValueError, match="y must hold grades as integers from 0 up, or a pandas categorical"):
        pmg.mlp(X, np.asarray(names), 3, likelihood="ordered")


@pytest.mark.slow
def test_mlp_of_grades_finds_the_cutpoints():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(400, D))
    y = np.searchsorted([-0.6, 0.2, 1.1], np.sqrt(2) * x[:, 0] + rng.normal(size=400))
    with pmg.mlp(x, y, 3, likelihood="ordered", activation="identity"):
        idata = pm.sample(
            500, step=pmg.GibbsNN(), chains=2, cores=1, random_seed=1, progressbar=False,
            var_names=pmg.without_latents(),
        )  # fmt: skip
        found = pmg.predict(idata, X_new=x, random_seed=1)
    assert (found["label"] == y).mean() > 0.4
    gaps = np.diff(idata["posterior"]["cutpoints_y"].mean(("chain", "draw")) / np.sqrt(2))
    np.testing.assert_allclose(gaps, [0.8, 0.9], atol=0.25)  # y* has the noise √2 in the model, and 1 in the data


@pytest.mark.slow
def test_jax():
    """pmg.sample needs cutpoints that are numbers."""
    idata = pmg_sample(network("probit"), 5)
    assert np.isfinite(idata["posterior"]["W1"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["censored by row", "truncated", "logistic"])
def test_jax_of_other_forms(form):
    idata = pmg_sample(network(form), 5)
    assert np.isfinite(idata["posterior"]["W1"]).all()

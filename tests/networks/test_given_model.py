"""Models whose numbers are given: density and gradient are those of the model as it is written, whatever it holds."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import ordered

from pymc_gibbsnn.backends.modes import compilation_mode
from pymc_gibbsnn.networks.given_model import with_given_numbers
from pymc_gibbsnn.targets.plain import PlainTarget
from pymc_gibbsnn.targets.target import of_given_numbers
from pymc_gibbsnn.targets.whitening import WhitenedTarget
from tests.helpers import in_python, random_point

N = 6
RNG = np.random.default_rng(0)
REAL, SHARES, POSITIVE, COUNTS = RNG.normal(size=N), RNG.uniform(0.2, 0.8, N), RNG.uniform(0.5, 3, N), np.arange(N) % 4
ROWS = RNG.normal(size=(N, 3))
WEIGHTS = RNG.dirichlet([1, 1], N)  # of two components, by row
S = np.eye(3) + 0.2
GRID = np.linspace(-4, 4, 30)


def f(*shape):
    """The Gaussian variables of each model."""
    return pm.Normal("f", 0.1, 0.9, shape=shape)


def potential(density):
    return pm.Potential("p", density)


def censored_potential(replaced):
    """A potential that is a density of a distribution made of others; without the values PyMC copies variables."""
    mean = f(N)
    if replaced:
        [mean] = pm.modelcontext(None).replace_rvs_by_values([mean])
    return potential(pm.logp(pm.Censored.dist(pm.Normal.dist(mean, 0.7), None, 1), REAL))


def around(latent, sigma=0.7):
    return pm.Normal("y", latent + f(), sigma, observed=REAL)


exp, sigmoid = pm.math.exp, pm.math.sigmoid
LIKELIHOODS = {
    "Normal": lambda: pm.Normal("y", f(N), 0.5, observed=REAL),
    "rows of variables": lambda: pm.Normal(
        "y", (pt.tanh(f(4, 2)[COUNTS]) * pm.Normal("w", 0.4, 1.2, shape=(4, 2))[COUNTS]).sum(axis=1), 0.3, observed=REAL
    ),
    "several columns": lambda: pm.StudentT("y", nu=3, mu=f(N), sigma=0.4, shape=(4, N), observed=np.ones((4, N))),
    "missing": lambda: pm.Normal("y", f(N), 0.5, observed=np.where(COUNTS > 2, np.nan, REAL)),
    "Gamma": lambda: pm.Gamma("y", mu=exp(f(N)), sigma=0.8, observed=POSITIVE),
    "NegativeBinomial": lambda: pm.NegativeBinomial("y", exp(f(N)), 2.5, observed=COUNTS),
    "TruncatedNormal": lambda: pm.TruncatedNormal("y", f(N), 0.5, lower=0, observed=POSITIVE),
    "ZeroInflatedPoisson": lambda: pm.ZeroInflatedPoisson("y", 0.7, exp(f(N)), observed=COUNTS),
    "by row": lambda: pm.ZeroInflatedPoisson("y", np.linspace(0.5, 0.8, N), exp(f(N)), observed=COUNTS),
    "HurdlePoisson": lambda: pm.HurdlePoisson("y", 0.7, exp(f(N)), observed=COUNTS),
    "Categorical": lambda: pm.Categorical("y", logit_p=f(N, 4), observed=COUNTS),
    "OrderedLogistic": lambda: pm.OrderedLogistic("y", eta=f(N), cutpoints=[-1.0, 0.3, 1.0], observed=COUNTS),
    "OrderedProbit": lambda: pm.OrderedProbit(
        "y", f(), pm.Normal("c", 0, 1, shape=3, transform=ordered, initval=[-1, 0, 1]), observed=COUNTS
    ),
    "Multinomial": lambda: pm.Multinomial("y", 5, pm.math.softmax(f(N, 3), axis=1), observed=[[1, 1, 3]] * N),
    "DirichletMultinomial": lambda: pm.DirichletMultinomial("y", 5, exp(f(N, 3)), observed=[[1, 1, 3]] * N),
    "MvNormal": lambda: pm.MvNormal("y", f(3), S, observed=ROWS),
    "MvStudentT": lambda: pm.MvStudentT("y", nu=4, mu=f(N, 3), scale=S, observed=ROWS),
    "LKJCholeskyCov": lambda: pm.MvNormal(
        "y", f(3), chol=pm.LKJCholeskyCov("c", n=3, eta=2, sd_dist=pm.Exponential.dist(1.3))[0], observed=ROWS
    ),
    "GaussianRandomWalk": lambda: pm.GaussianRandomWalk(
        "y", mu=f(), sigma=0.5, init_dist=pm.Normal.dist(0, 2.5), observed=REAL
    ),
    "latent random walk": lambda: around(
        pm.GaussianRandomWalk("walk", 0.1, 0.4, init_dist=pm.Normal.dist(0, 2.5), steps=N - 1)
    ),
    "AR": lambda: pm.AR("y", f(2), sigma=0.4, constant=True, init_dist=pm.Normal.dist(0, 2.5), observed=REAL),
    "AR of numbers": lambda: potential(
        f() ** 2 * pm.AR("a", [0.5, 0.2], sigma=0.4, init_dist=pm.Normal.dist(0, 2.5, shape=2), steps=4)
    ),
    "Censored": lambda: pm.Censored("y", pm.Normal.dist(f(), 1), lower=None, upper=1.0, observed=[0.1, 1, 1]),
    "Censored by row": lambda: pm.Censored(
        "y", pm.Normal.dist(f(N), 0.8), np.full(N, -1.0), np.linspace(1, 2, N), observed=np.clip(REAL, -1, 1)
    ),
    "Censored counts": lambda: pm.Censored("y", pm.Poisson.dist(exp(f(N))), lower=None, upper=3, observed=COUNTS),
    "Truncated by row": lambda: pm.Truncated(
        "y", pm.StudentT.dist(nu=3, mu=f(N), sigma=0.8), lower=np.zeros(N), upper=5, observed=POSITIVE
    ),
    "latent Truncated": lambda: around(pm.Truncated("t", pm.Normal.dist(0.2, 0.8), lower=0, upper=3)),
    "NormalMixture": lambda: pm.NormalMixture("y", [0.3, 0.7], mu=f(2), sigma=[0.5, 0.8], observed=REAL),
    "NormalMixture by row": lambda: pm.NormalMixture("y", WEIGHTS, mu=f(2), sigma=[0.5, 0.8], observed=REAL),
    "learned weights": lambda: pm.NormalMixture(
        "y", pm.math.softmax(f(N, 2), axis=1), mu=[-1.2, 1.2], sigma=[0.5, 0.8], observed=REAL
    ),
    "latent NormalMixture": lambda: around(pm.NormalMixture("m", [0.3, 0.7], mu=[-1.2, 1.2], sigma=0.4, shape=N)),
    "Mixture of two kinds": lambda: pm.Mixture(
        "y", WEIGHTS, [pm.Normal.dist(f(N), 0.5), pm.Laplace.dist(0.1, 1.2)], observed=REAL
    ),
    "Mixture of one kind": lambda: pm.Mixture("y", WEIGHTS, pm.Poisson.dist(exp(f(2))), observed=COUNTS),
    "Mixture of truncated": lambda: pm.Mixture(
        "y", [0.4, 0.6], [pm.TruncatedNormal.dist(f(N), 0.8, lower=0), pm.Exponential.dist(1.3)], observed=POSITIVE
    ),
    "Mixture of vectors": lambda: pm.Mixture(
        "y", WEIGHTS, [pm.MvNormal.dist(f(3), S), pm.MvNormal.dist(np.zeros(3), S)], observed=ROWS
    ),
    "CustomDist": lambda: pm.CustomDist(
        "y", f(N), 0.7, logp=lambda value, mu, scale: -(((value - mu) / scale) ** 4), observed=REAL
    ),
    "CustomDist of others": lambda: pm.CustomDist(
        "y", f(N), 0.7, dist=lambda mu, s, size: mu + s * pm.StudentT.dist(nu=3, size=size), observed=REAL
    ),
    "clipped": lambda: pm.CustomDist(
        "y", f(N), 0.7, dist=lambda mu, s, size: pt.clip(pm.Normal.dist(mu, s, size=size), -1, 1), observed=[-1, 1] * 3
    ),
    "Potential": lambda: potential(-((f(N) - REAL) ** 4)),
    "Potential of a density": lambda: censored_potential(True),
    "GP": lambda: pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, exp(f()))).marginal_likelihood(
        "y", ROWS[:, :1], REAL, 0.3
    ),
    "ZeroSumNormal": lambda: around(pm.ZeroSumNormal("z", 0.7, shape=N)),
    "Uniform and HalfCauchy": lambda: around(pm.Uniform("u", -2, 3), pm.HalfCauchy("scale", 2.5)),
}


def looks_at_its_number(value, mu, scale):
    """A density that no symbolic number will do for."""
    return -(((value - mu) / scale.data.item()) ** 2)


AS_WRITTEN = {
    "Interpolated": lambda: around(pm.Interpolated("i", GRID, np.exp(-(GRID**2)))),
    "StickBreakingWeights": lambda: pm.NormalMixture(
        "y", pm.StickBreakingWeights("w", 1.2, K=3), f(4), 1, observed=REAL
    ),
    "CustomDist": lambda: pm.CustomDist("y", f(N), 0.7, logp=looks_at_its_number, observed=REAL),
}


def built(make):
    """The model whose likelihood a function writes."""
    with pm.Model() as model:
        make()
    return model


def values(target, model, mode=None):
    """Log density and gradient of a target at two points far from any optimum."""
    position = [v.clone() for v in target.variables]
    density, gradient = target.gradient(position, {})
    function = pytensor.function(position, [density, *gradient], mode=mode)
    points = [random_point(model, seed) for seed in (1, 2)]
    return [function(*(point[v.name] for v in target.variables)) for point in points]


def check(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        for x, y in zip(ours, theirs, strict=True):
            assert np.isfinite(y).all()
            np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)  # PyMC takes logarithms of some numbers in float32


@in_python()
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_density_is_that_of_the_model(name):
    model = built(LIKELIHOODS[name])
    check(values(PlainTarget(with_given_numbers(model)), model), values(PlainTarget(model), model))


@in_python()
@pytest.mark.parametrize("name", AS_WRITTEN)
def test_densities_that_look_at_numbers_are_taken_as_written(name):
    model = built(AS_WRITTEN[name])
    check(values(of_given_numbers(PlainTarget, model), model), values(PlainTarget(model), model))


def test_a_censored_normal_in_jax():
    """Its distribution function rests on erfcx, which PyTensor alone does not have in JAX."""
    model = built(LIKELIHOODS["Censored"])
    target = of_given_numbers(PlainTarget, model)
    check(values(target, model, compilation_mode("JAX")), values(target, model, "AS_WRITTEN"))


RANDOM = {
    "Simulator": lambda: pm.Simulator("y", lambda rng, mu, size: rng.normal(mu, size=size), f(), observed=REAL),
    "Normal": lambda: censored_potential(False),
}


@pytest.mark.filterwarnings("ignore:RandomVariables .* were found:UserWarning")
@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("kind", [PlainTarget, WhitenedTarget])
def test_a_density_that_is_a_random_number_is_refused(name, kind):
    with pytest.raises(ValueError, match=rf"holds a draw of {name}: .* pm\.sample_smc.* model\.replace_rvs_by_values"):
        of_given_numbers(kind, built(RANDOM[name]))

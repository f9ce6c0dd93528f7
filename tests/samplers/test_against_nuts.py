"""GibbsNN beside NUTS on the same model, for each likelihood of a noisy network."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from tests.helpers import QUIET, check_same_distribution

N, NOISE = 12, 0.6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
F = X[:, 0] - np.tanh(2 * X[:, 1]) + 0.3 * RNG.normal(size=N)
REAL = F + 0.3 * RNG.standard_t(3, size=N)
GRADES = np.digitize(F, [-0.6, 0.6])
HOURS = RNG.uniform(1, 3, N)
COUNTS = RNG.poisson(HOURS * np.exp(F))
SHARES = RNG.beta(3 / (1 + np.exp(-F)), 3 / (1 + np.exp(F)))
TIMES = RNG.gamma(4, np.exp(F) / 4)
ORDERED = pm.distributions.transforms.ordered


def written(likelihood, y, **arguments):
    """The model that mlp writes."""
    settings = {"activation": "tanh", "noise": NOISE, "prior": 1.0} | arguments
    return lambda: pmg.mlp(X[: len(y)], y, 2, likelihood=likelihood, **settings)


def by_hand(observe, classes=(), integrated=False):
    """The same network below another likelihood of its last latent or, for NUTS, of the mean of this latent."""

    def build():
        with pm.Model() as model:
            W1, b1 = pm.Normal("W1", 0, 1, shape=(2, 2)), pm.Normal("b1", 0, 1, shape=2)
            Z2 = pm.Normal("Z2", X @ W1.T + b1, NOISE)
            A2 = pm.Normal("A2", pt.tanh(Z2), NOISE)
            mean = A2 @ pm.Normal("W2", 0, 1, shape=(*classes, 2)).T + pm.Normal("b2", 0, 1, shape=classes)
            observe(mean if integrated else pm.Normal("Z3", mean, NOISE))
        return model

    return build


def of_largest(mean):
    """The probability that a label is the place of the largest of its latents, by quadrature over this one."""
    u, weights = np.polynomial.hermite_e.hermegauss(20)
    own = mean[np.arange(N), GRADES]
    distances = (own[:, None] - mean)[..., None] / NOISE + u
    others = pt.switch(np.eye(3)[GRADES][..., None], 0, pm.logcdf(pm.Normal.dist(0, 1), distances)).sum(axis=1)
    pm.Potential("y", pt.log(pt.exp(others) @ (weights / weights.sum())).sum())


def cutpoints():
    return pm.Normal("cutpoints_y", [-0.8, 0.8], 1.5, transform=ORDERED)


def logistic(value, z, scale):
    return -(value - z) / scale - pt.log(scale) - 2 * pt.log1p(pt.exp(-(value - z) / scale))


WRITTEN = {
    "normal": written("normal", REAL),
    "student": written("student", REAL, activation="relu"),
    "laplace": written("laplace", REAL),
    "mixture": written("mixture", REAL[:6]),
    "probit": written("probit", GRADES // 2),
    "probit, three classes": written("probit", GRADES),
    "bernoulli": written("bernoulli", GRADES // 2),
    "binomial": written("binomial", np.minimum(COUNTS, 4), trials=np.arange(N) % 3 + 4),
    "categorical": written("categorical", GRADES),
    "ordered": written("ordered", GRADES),
    "poisson": written("poisson", COUNTS, exposure=HOURS, activation="relu"),
    "negative_binomial": written("negative_binomial", COUNTS, exposure=HOURS),
    "gamma": written("gamma", TIMES, noise=0.3),
    "beta": written("beta", SHARES, noise=0.3),
    "lognormal": written("lognormal", np.exp(REAL)),
    "censored": written("normal", REAL.clip(-0.8, 0.8), lower=-0.8, upper=0.8, activation="relu"),
}
BY_HAND = {
    "truncated": by_hand(lambda z: pm.TruncatedNormal("y", z, 0.8, lower=-1, upper=1, observed=REAL.clip(-0.9, 0.9))),
    "intervals": by_hand(lambda z: pm.OrderedProbit("y", z, [-0.6, 0.6], 0.5, compute_p=False, observed=GRADES)),
    "ordered logistic": by_hand(lambda z: pm.OrderedLogistic("y", z, cutpoints(), compute_p=False, observed=GRADES)),
    "density": by_hand(lambda z: pm.CustomDist("y", z, pm.Gamma("scale_y", 4, 8), logp=logistic, observed=REAL)),
    "zero-inflated": by_hand(lambda z: pm.ZeroInflatedPoisson("y", pm.Beta("psi_y", 2, 1), pt.exp(z), observed=COUNTS)),
}
MODELS = WRITTEN | BY_HAND
FOR_NUTS = {
    "probit": by_hand(lambda m: pm.Bernoulli("y", pm.math.invprobit(m / NOISE), observed=GRADES // 2), (), True),
    "probit, three classes": by_hand(of_largest, (3,), True),
}
SLOW = {"gamma", "mixture"}  # chains that need more sweeps: these parameters and the latents move each other slowly


def quantities(posterior):
    """Numbers (chain, draw) that do not depend on the order of units, or of parts of a mixture."""
    draws = {name: x.values for name, x in posterior.items()}
    w = draws["W2"].reshape(*draws["W2"].shape[:2], -1, 2)  # (chain, draw, output, unit)
    b = draws["b2"].reshape(*w.shape[:3])
    series = {"output": (draws["A2"] * w[:, :, :1]).sum(-1) + b[:, :, :1]}
    if "Z3" in draws:
        series["Z3"] = draws["Z3"].reshape(*series["output"].shape, -1)[..., 0]
    found = {f"{name}, row {i}": x[..., i] for name, x in series.items() for i in (0, 5)}
    found |= {f"{name} along F": (x * F[: x.shape[-1]]).mean(-1) for name, x in series.items()}
    found |= {name: (draws[name] ** 2).mean((-2, -1)) for name in ("W1", "Z2", "A2")} | {"W2": (w**2).mean((-2, -1))}
    if "centers_y" in draws:
        parts, centers, variances = draws["weights_y"], draws["centers_y"], draws["variances_y"]
        centre = (parts * centers).sum(-1)
        spread = (parts * (variances + (centers - centre[..., None]) ** 2)).sum(-1)
        return found | {"centre": centre, "log spread": np.log(spread), "parts": (parts**2).sum(-1),
                        "log variances": np.log(variances).mean(-1), "centers": (centers**2).mean(-1)}  # fmt: skip
    found |= {f"1/√{name}": draws[name] ** -0.5 for name in ("alpha_y", "nu_y") if name in draws}  # of finite moments
    found |= {name: draws[name] for name in ("scale_y", "psi_y") if name in draws}
    return found | {f"cutpoint {k}": draws["cutpoints_y"][..., k] for k in (0, 1) if "cutpoints_y" in draws}


def drawn_by_both(name):
    """The quantities less their mean by NUTS, as GibbsNN draws them in Numba, where users run it, and as NUTS does."""
    with FOR_NUTS.get(name, MODELS[name])():
        nuts = pm.sample(3000, tune=500, chains=2, cores=1, random_seed=1, **QUIET)
    with MODELS[name]():
        step = pmg.GibbsNN(sweeps_per_draw=15 if name in SLOW else 5)
        ours = pm.sample(1500, tune=300, chains=4, cores=1, random_seed=2, step=step, **QUIET)
    found, expected = (quantities(idata["posterior"]) for idata in (ours, nuts))
    return [{name: of[name] - x.mean() for name, x in expected.items()} for of in (found, expected)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_nuts_on_the_same_model_agrees(name):
    """Means and variances of each quantity."""
    check_same_distribution(*drawn_by_both(name))

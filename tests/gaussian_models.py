"""Small models for the tests of pCN, pCNL and MALA, and their densities in numbers."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy.stats import multivariate_normal

from tests.helpers import compile_draw

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))
WIDE_X = RNG.normal(size=(4, 7))


def network(X, outputs=None, hidden=4, layout="rows", noise=0.3, prior_mean=0.0):
    """A network with a hierarchical prior scale of its first layer, and its prior means anywhere."""
    _, d = X.shape
    y = np.sin(X[:, 0]) if outputs is None else np.sin(X[:, :1] + np.arange(outputs))
    k = () if outputs is None else (outputs,)
    with pm.Model() as model:
        data = pm.Data("X", X)
        log_scale = pm.Normal("log_scale", 0.2, 0.7)
        if layout == "rows":
            W1 = pm.Normal("W1", 0, pt.exp(log_scale), shape=(hidden, d))
            W2 = pm.Normal("W2", prior_mean, 0.7, shape=(*k, hidden))
            a = pt.tanh(0.6 * data @ W1.T + pm.Normal("b1", 0.1, 1.3, shape=hidden))
            mean = a @ W2.T
        else:
            W1 = pm.Normal("W1", 0, pt.exp(log_scale), shape=(d, hidden))
            W2 = pm.Normal(
                "W2", prior_mean, np.linspace(0.6, 0.9, hidden).reshape((-1, *[1] * len(k))), shape=(hidden, *k)
            )
            a = pt.tanh(0.6 * data @ W1 + pm.Normal("b1", 0.1, 1.3, shape=hidden))
            mean = 1.7 * (a @ W2) / 0.9
        b2 = pm.Normal("b2", -0.4, 1.1, shape=k)
        pm.Normal("y", mean + 0.3 * b2 - 0.1, noise, observed=y)
    return model


MODELS = {
    "vector": lambda: network(X),
    "more features than rows": lambda: network(X, hidden=8),
    "matrix": lambda: network(X, outputs=2, prior_mean=0.3),
    "columns": lambda: network(X, outputs=2, hidden=7, layout="columns", prior_mean=0.3),
    "wide data": lambda: network(WIDE_X, outputs=2, hidden=3),
    "wide data, columns": lambda: network(WIDE_X, layout="columns", hidden=5),
}


class Numbers:
    """A target at numbers: φ anywhere, ℓ, its gradient, and the variables there."""

    def __init__(self, target):
        self.target = target
        state = dict.fromkeys(target.variables)
        constants = pytensor.function([], list(target.constants.values()), mode="AS_WRITTEN")()
        self.constants = dict(zip(target.constants, constants, strict=True))
        as_graph = {name: pt.constant(x) for name, x in self.constants.items()}
        self.phi = [x.type() for x in target.coordinates.values()]
        shapes = pytensor.function([], [x.shape for x in target.coordinates.values()], mode="AS_WRITTEN")()
        self.shapes = [tuple(shape) for shape in shapes]
        log_likelihood, gradient = target.gradient(self.phi, as_graph)
        outputs = [target.log_likelihood(self.phi, as_graph), target.log_prior(self.phi, as_graph), log_likelihood]
        self.function = pytensor.function(self.phi, [*outputs, *gradient], mode="AS_WRITTEN", on_unused_input="ignore")
        assert set(state) == set(target.variables)

    def __call__(self, phi):
        found = self.function(*phi)
        return float(found[0]), float(found[1]), found[3:]

    def random(self, rng):
        return [rng.normal(size=shape) for shape in self.shapes]

    def states(self, phi, draws=1, seed=0):
        """Draws of the variables given φ."""
        as_graph = {name: pt.constant(x) for name, x in self.constants.items()}
        phi = [pt.constant(x) for x in phi]

        def build(rng):
            rng, state = self.target.draw(rng, phi, as_graph)
            return rng, *(state[v] for v in self.target.variables)

        draw = compile_draw(build, seed=seed)
        names = [v.name for v in self.target.variables]
        return [
            dict(zip(names, np.atleast_1d(draw()) if len(names) == 1 else draw(), strict=True)) for _ in range(draws)
        ]


@cache
def logp(name):
    return MODELS[name]().compile_logp(mode="AS_WRITTEN")


def direct_marginal(model, point):
    """log p(y | inner weights) of a network, the readout integrated out by a dense Gaussian."""
    data, y = model["X"].get_value(), model.rvs_to_values[model["y"]].data
    y = y.reshape((len(y), -1))
    w, columns = point["W1"], point["W1"].shape[0] == data.shape[1]
    a = np.tanh(0.6 * data @ (w if columns else w.T) + point["b1"])
    h, k = a.shape[1], y.shape[1]
    factor = 1.7 / 0.9 if columns else 1.0
    prior_mean = float(np.mean(model["W2"].owner.op.dist_params(model["W2"].owner)[0].eval()))
    scale = np.linspace(0.6, 0.9, h) if columns else np.full(h, 0.7)
    psi = np.c_[factor * a * scale, np.full(len(y), 0.3 * 1.1)]
    mean = factor * a.sum(1) * prior_mean + 0.3 * -0.4 - 0.1
    covariance = psi @ psi.T + 0.09 * np.eye(len(y))
    return sum(multivariate_normal.logpdf(y[:, j], mean, covariance) for j in range(k)), psi, y - mean[:, None]


def run(step, draws, point=None):
    """Values of the variables and statistics over some draws of a step."""
    point, values, stats = point or step.model.initial_point(), [], []
    for _ in range(draws):
        point, [found] = step.step(point)
        values.append({name: np.array(x) for name, x in point.items()})
        stats.append(found)
    return tuple({name: np.array([row[name] for row in rows]) for name in rows[0]} for rows in (values, stats))

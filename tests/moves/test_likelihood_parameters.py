"""Parameters of the likelihood, such as a dispersion or cutpoints, which are drawn with the network."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.likelihood_parameters import has_shift, likelihood_parameters, shift
from pymc_gibbsnn.moves.site import NetworkState
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import LEAN, MODES, PYTHON, check_mean, compile_draw, pm_sample, pmg_sample, slow, slow_but
from tests.samplers.test_gibbs import NUMBA, check_geweke

N = 12
X = np.random.default_rng(0).normal(size=(N, 2))
COUNTS = np.array([0, 3, 1, 0, 7, 2, 1, 4, 0, 2, 9, 1])
GRADES = COUNTS % 3
Y = np.linspace(-1, 2, N)
ORDERED = pm.distributions.transforms.ordered
NOISE = 0.8


def ordered_cutpoints():
    return pm.Normal("cutpoints", [-0.5, 0.8], 1, transform=ORDERED)


LIKELIHOODS = {
    "dispersion": (
        lambda z, y: pm.NegativeBinomial("y", mu=pm.math.exp(z), alpha=pm.Gamma("alpha", 2, 1), observed=y),
        COUNTS,
    ),
    "with a prior of its own": (
        lambda z, y: pm.Gamma("y", mu=pm.math.exp(z), sigma=pm.HalfNormal("s", pm.Gamma("width", 2, 2)), observed=y),
        COUNTS + 0.5,
    ),
    "degrees": (lambda z, y: pm.StudentT("y", pm.Gamma("nu", 4, 1), z, sigma=0.7, observed=y), Y),
    "scale": (lambda z, y: pm.Normal("y", z, pm.HalfNormal("s", 1), observed=y), Y),
    "cutpoints, probit": (
        lambda z, y: pm.OrderedProbit("y", z, cutpoints=ordered_cutpoints(), sigma=0.7, compute_p=False, observed=y),
        GRADES,
    ),
    "cutpoints, logistic": (
        lambda z, y: pm.OrderedLogistic("y", z, cutpoints=ordered_cutpoints(), compute_p=False, observed=y),
        GRADES,
    ),
    "added": (lambda z, y: pm.Poisson("y", pm.math.exp(z + pm.Normal("level", 0, 1)), observed=y), COUNTS),
    "centers": (
        lambda z, y: pm.NormalMixture(
            "y", [0.3, 0.7], mu=z[:, None] + pm.Normal("centers", [-1, 1], 1), sigma=0.5, observed=y
        ),
        Y,
    ),
}
FOUND = {
    "dispersion": {"alpha"},
    "with a prior of its own": {"s", "width"},
    "degrees": {"nu"},
    "scale": {"s"},
    "cutpoints, probit": {"cutpoints"},
    "cutpoints, logistic": {"cutpoints"},
    "added": {"level"},
    "centers": {"centers"},
}


def model_of(name, bias=0.0):
    observe, y = LIKELIHOODS[name]
    with pm.Model() as model:
        Z2 = pm.Normal("Z2", pm.Data("X", X) @ pm.Normal("W1", 0, 1, shape=(2, 2)), NOISE)
        A2 = pm.Normal("A2", pt.maximum(Z2, 0), NOISE)
        b = pm.Normal("b2", 0, bias) if bias else 0.0
        observe(pm.Normal("Z3", A2 @ pm.Normal("W2", 0, 0.5, shape=2) + b, NOISE), pm.Data("y_data", y))
    return model


def point_of(model):
    rng = np.random.default_rng(1)
    return {name: x + 0.3 * rng.normal(size=x.shape) for name, x in model.initial_point().items()}


@pytest.mark.parametrize("name", slow_but({"dispersion", "degrees", "cutpoints, probit"}, LIKELIHOODS))
def test_parameters_are_found_and_the_log_density_is_that_of_pymc(name):
    model = model_of(name)
    network = read_network(model)
    assert {one.name for one in network.parameters} == FOUND[name]
    with model:
        step = pmg.GibbsNN(compile_kwargs=PYTHON, **LEAN)
    point = point_of(model)
    for _ in range(3):
        point, [found] = step.step(point)
    np.testing.assert_allclose(found["lp"], model.compile_logp(mode="AS_WRITTEN")(point))


# The conditional, beside quadrature


def chain_of(model, point, draws, mode="AS_WRITTEN"):
    """Draws of the parameters, as value variables, given all else at the point."""
    network = read_network(model)
    parameters = [one.value for one in network.parameters]
    shared = [pytensor.shared(point[v.name], v.name) for v in parameters]
    values = {v: pt.constant(point[v.name]) for v in network.variables} | dict(zip(parameters, shared, strict=True))

    def build(rng):
        state = NetworkState.begin(network.at, values, pt.constant(0.0))
        rng, state = likelihood_parameters(rng, state)
        return rng, *(state.values[v] for v in parameters)

    draw, found = compile_draw(build, mode), []
    for _ in range(draws):
        new = draw()
        new = new if isinstance(new, list) else [new]
        for variable, x in zip(shared, new, strict=True):
            variable.set_value(np.asarray(x))
        found.append(np.concatenate([np.ravel(x) for x in new]))
    return np.array(found)


def log_density(model, point, name):
    """The log density of the parameters given all else; that of cutpoints of a probit with Z3 integrated out."""
    names = [model.rvs_to_values[rv].name for rv in model.free_RVs if rv.name in FOUND[name]]
    of_model = model.compile_logp(mode="AS_WRITTEN")
    if name != "cutpoints, probit":
        return lambda x: of_model(point | {names[0]: x.reshape(point[names[0]].shape)})
    of_prior = model.compile_logp(vars=[model["cutpoints"]], mode="AS_WRITTEN")
    mean, sd = point["A2"] @ point["W2"], np.hypot(NOISE, 0.7)

    def density(x):
        ends = np.array([-np.inf, x[0], x[0] + np.exp(x[1]), np.inf])
        mass = stats.norm.cdf((ends[GRADES + 1] - mean) / sd) - stats.norm.cdf((ends[GRADES] - mean) / sd)
        return of_prior(point | {names[0]: x}) + np.log(mass).sum()

    return density


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dispersion", "scale", "degrees", "cutpoints, probit", "cutpoints, logistic"])
def test_the_conditional_is_that_of_quadrature(name):
    model = model_of(name)
    point = point_of(model)
    chain = chain_of(model, point, 20_000, "NUMBA")[100:]
    centre, width = chain.mean(axis=0), 7 * chain.std(axis=0)
    axes = [np.linspace(c - w, c + w, 61 if len(centre) > 1 else 401) for c, w in zip(centre, width, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(centre))
    density = log_density(model, point, name)
    log_p = np.array([density(x) for x in grid])
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    for i in range(len(centre)):
        for power in (1, 2):
            check_mean(chain[:, i] ** power, float(p @ grid[:, i] ** power), f"number {i} to the power {power}")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["AS_WRITTEN", "JAX"])
def test_other_backends_draw_as_numba_does(mode):
    model = model_of("dispersion")
    point = point_of(model)
    numba, other = chain_of(model, point, 20_000, "NUMBA"), chain_of(model, point, 1500, mode)
    check_mean(other[:, 0], numba[:, 0].mean(), mode, numba.std() / np.sqrt(5000), least_ess=200)


# Cutpoints, or centers, with the bias


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, mode) for name in ("centers", "cutpoints, logistic", "cutpoints, probit") for mode in MODES],
)
@pytest.mark.slow
def test_the_shift_against_quadrature(name, mode):
    model = model_of(name, bias=0.7)
    network, point = read_network(model), point_of(model)
    assert has_shift(network)
    logp = model.compile_logp(mode="AS_WRITTEN")

    [parameter] = point.keys() & {"cutpoints_ordered__", "centers"}
    direction = np.array([-1, -1] if parameter == "centers" else [1, 0])

    def at(t):
        return point | {parameter: point[parameter] + t * direction, "b2": point["b2"] + t, "Z3": point["Z3"] + t}

    t = np.linspace(-5, 5, 2001)
    p = np.array([logp(at(t_)) for t_ in t])
    p = np.exp(p - p.max()) / np.exp(p - p.max()).sum()
    moving = {
        v: pytensor.shared(np.asarray(point[v.name]), v.name, shape=np.shape(point[v.name]))
        for v in network.variables if v.name in (parameter, "b2", "Z3")
    }  # fmt: skip
    values = {v: pt.constant(point[v.name]) for v in network.variables} | moving

    def build(rng):
        rng, state = shift(network)(rng, NetworkState.begin(network.at, values, pt.constant(0.0)))
        new = state.new_values
        return rng, *(new[v] for v in moving)

    draw, found = compile_draw(build, mode), []
    for _ in range(20_000 if mode == "NUMBA" else 1500):
        new = draw()
        for variable, x in zip(moving.values(), new, strict=True):
            variable.set_value(np.asarray(x))
        found.append(moving[next(v for v in moving if v.name == "b2")].get_value() - point["b2"])
    moved = {v.name: variable.get_value() for v, variable in moving.items()}
    for key, x in at(found[-1]).items():
        np.testing.assert_allclose(moved.get(key, x), x, atol=1e-9)
    for power in (1, 2):
        check_mean(np.array(found) ** power, p @ t**power, f"shift to the power {power}", least_ess=300)


def test_which_parameters_move_with_the_bias():
    with pm.Model() as model:
        z = pm.Normal("Z", X @ pm.Normal("W", 0, 1, shape=2) + pm.Normal("b", 0, 1), NOISE)
        cutpoints = pt.stack([np.float64(-1), pm.HalfNormal("highest", 1)])
        pm.OrderedLogistic("y", z, cutpoints=cutpoints, compute_p=False, observed=GRADES)
    network = read_network(model)
    assert {one.name for one in network.parameters} == {"highest"}
    assert not has_shift(network)  # one number cannot move all of them
    assert not has_shift(read_network(model_of("cutpoints, logistic")))
    assert not has_shift(read_network(model_of("dispersion", bias=0.7)))
    with pm.Model() as model:  # a slope, which is no number that is added
        W = pm.Normal("W", 0, 1, shape=2)
        z = pm.Normal("Z", pm.Data("X", X) @ W + pm.Normal("b", 0, 1), 0.5)
        pm.Poisson("y", pm.math.exp(z + X[:, 0] * pm.Normal("slope", 0, 1)), observed=COUNTS)
    assert not has_shift(read_network(model))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LIKELIHOODS if name not in ("added", "centers")])
def test_geweke(name):
    """But of what hardly moves without a bias."""
    check_geweke(model_of(name), 6000, interweave=False, **NUMBA)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cutpoints, probit", "cutpoints, logistic", "added"])
def test_geweke_with_a_bias(name):
    check_geweke(model_of(name, bias=0.7), 6000, interweave=False, **NUMBA)


# What users meet


def test_what_is_left_to_other_steps():
    """Variables on which other parts of the model depend, many numbers, and what vars= leaves out."""
    with pm.Model() as model:
        z = pm.Normal("Z", pm.Data("X", X) @ pm.Normal("W", 0, 1, shape=2), 0.5)
        effects = pm.Normal("effects", 0, 1, shape=N)
        shared = pm.Gamma("shared", 2, 1)
        pm.Poisson("y", pm.math.exp(z + effects), observed=COUNTS)
        pm.NegativeBinomial("other", mu=shared, alpha=pm.Gamma("alpha", 2, 1), observed=COUNTS)
    assert not read_network(model).parameters
    model = model_of("dispersion")
    left = read_network(model, vars=[model[name] for name in ("W1", "Z2", "A2", "W2", "Z3")])
    assert not left.parameters
    assert [one.name for one in read_network(model).parameters] == ["alpha"]


@pytest.mark.parametrize("sample", [pm_sample, slow(pmg_sample)])
def test_a_run_needs_no_other_step(sample):
    idata = sample(model_of("cutpoints, probit"), draws=30, tune=30)
    cutpoints = idata["posterior"]["cutpoints"].values
    assert (np.diff(cutpoints, axis=-1) > 0).all()
    assert len(np.unique(cutpoints[..., 0])) > 30

"""The sweep as a whole leaves the joint distribution of its model unchanged."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from scipy import stats

import pymc_gibbsnn as pmg
from pymc_gibbsnn.moves.postactivations import draw_postactivations
from pymc_gibbsnn.moves.preactivations import draw_preactivations, draw_preactivations_collapsed
from pymc_gibbsnn.moves.weights import draw_weights
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from pymc_gibbsnn.networks.likelihoods.around_latent import AroundLatent
from pymc_gibbsnn.networks.likelihoods.censored import CensoredLikelihood
from pymc_gibbsnn.networks.likelihoods.effect import EffectLikelihood
from pymc_gibbsnn.networks.reader import read_network, read_networks
from tests.helpers import check_mean, check_same_distribution, compile_draw, dense, random_point, slow, slow_but, value

rng = np.random.default_rng(0)
X = rng.normal(size=(5, 2))
PLAIN = {"collapse": False, "scale_move": False, "interweave": False}
PARALLEL = {"collapse": False, "interweave": False, "schedule": "layer-parallel"}
FAST = {"compile_kwargs": {"mode": "AS_WRITTEN"}}
NUMBA = {"compile_kwargs": {"mode": "NUMBA"}}  # for long runs: each kernel is compiled once for all tests

ARCHITECTURES = {
    "linear regression": {"hidden": []},
    "one layer": {"hidden": 3},
    "vector output": {"hidden": 3, "outputs": None},
    "deep": {"hidden": [3, 2, 4], "noise": np.linspace(0.2, 0.8, 7)},
    "no bias": {"hidden": [2, 3], "bias": False},
    "more outputs than units": {"hidden": 2, "outputs": 4},
    "leaky": {"hidden": 2, "activation": "leaky_relu"},
    "sign": {"hidden": [2, 2], "activation": "sign"},
    "abs": {"hidden": 2, "activation": "abs"},
    "identity": {"hidden": 2, "activation": "identity"},
    "hard tanh": {"hidden": 2, "activation": "hard_tanh"},
    "relu6": {"hidden": 2, "activation": "relu6"},
    "table": {"hidden": 2, "activation": pmg.PiecewiseLinear([-0.5, 0.5], [1, -1, 2], [0, 0.2, -0.5])},
}


def network(hidden=3, outputs=2, noise=0.5, x=X, prior=None, **kwargs):
    y = rng.normal(size=(len(x),) if outputs is None else (len(x), outputs))
    return pmg.mlp(x, y, hidden, noise=noise, prior=prior, **kwargs)


def gibbs(model, **kwargs):
    return pmg.GibbsNN(model=model, rng=1, **(FAST | kwargs))


@pytest.mark.parametrize("name", slow_but({"linear regression", "deep", "sign", "table"}, ARCHITECTURES))
def test_lp_is_the_log_density_of_the_model(name):
    model = network(**ARCHITECTURES[name])
    start, layers, logp = random_point(model, 0), read_network(model).layers, model.compile_logp(mode="AS_WRITTEN")
    for kwargs in ({}, PLAIN, PARALLEL):
        point, [stats_] = gibbs(model, **kwargs).step(start)
        np.testing.assert_allclose(stats_["lp"], logp(point), rtol=1e-9, atol=1e-6, err_msg=str(kwargs))
        for layer in layers:
            norm = sum((point[v.name] ** 2).sum() for v in layer.operator.variables)
            np.testing.assert_allclose(stats_[f"norm_{layer.operator.name}"], norm)


def test_statistics_of_noise():
    model = network(hidden=3)
    point, [stats_] = gibbs(model).step(random_point(model, 0))
    z = X @ point["W1"].T + point["b1"]
    np.testing.assert_allclose(stats_["noise_Z2"], ((point["Z2"] - z) ** 2).mean() / 0.25)
    np.testing.assert_allclose(stats_["noise_A2"], ((point["A2"] - np.maximum(point["Z2"], 0)) ** 2).mean() / 0.25)


# Oracle 1: forward draws of (variables, data) against the sweep alternating with data given the variables


def unconstrained(model, name, x):
    """Draws of a variable as its value variable."""
    match model.rvs_to_transforms[model[name]]:
        case None:
            return x
        case transform if isinstance(transform, type(transforms.ordered)):
            return np.concatenate([x[..., :1], np.log(np.diff(x))], axis=-1)
        case transform if isinstance(transform, type(transforms.simplex)):
            return (np.log(x) - np.log(x).mean(axis=-1, keepdims=True))[..., :-1]
        case _:
            return np.log(x)


def geweke(model, draws, tune=0, **kwargs):
    """Draws of test functions by the successive-conditional simulator, and by the prior.

    There are so many draws, or up to four times as many, until the ESS of each function is large enough. Before them
    the sampler may tune, with the data as they are.
    """
    # Networks that are terms of the mean of data need nothing: the data given all variables are redrawn
    networks = [x for x in read_networks(model) if not isinstance(x.observation, EffectLikelihood)]
    observation = networks[-1].observation if networks else None
    output = model[networks[-1].layers[-1].name] if networks else model.observed_RVs[0]
    step, start = gibbs(model, **kwargs), model.initial_point()
    for _ in range(tune):
        start, _ = step.step(start)
    step.stop_tuning()
    generator = np.random.default_rng(5)
    free = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
    names = list(free)
    if observation:  # (Z, y) given the rest is redrawn as one
        names.remove(output.name)
    values = [free[name] for name in names]

    def functions(variables, y):
        """Of draws of all variables, in their order, and of the data; a row for each draw."""
        flat, y = [x.reshape(len(x), -1) for x in map(np.asarray, variables)], np.asarray(y).reshape(len(y), -1)
        moments = [f for x in flat for f in (x.mean(1), (x**2).mean(1), x[:, 0] ** 3)]
        return np.stack([*moments, (y**2).mean(1), y.mean(1) * flat[-2][:, 0]], axis=1)

    parameters = model.replace_rvs_by_values(output.owner.op.dist_params(output.owner))
    censored = isinstance(observation, CensoredLikelihood)
    if censored:  # y ~ StudentT(ν, Z, σ) or N(Z, σ), with bounds
        factors = 1 if observation.factors is None else observation.factors.reshape(model["y_data"].shape)
        degrees = pt.as_tensor(getattr(observation, "degrees", 1e9))
        parameters = [*parameters, pt.sqrt(observation.noise) * factors, degrees]
    parameters = pytensor.function(model.value_vars, parameters, mode="AS_WRITTEN", on_unused_input="ignore")
    # Unless data are labels, they are drawn from the distribution that they have in the model
    has_density = observation is not None and (observation.label is None or isinstance(observation, AroundLatent))
    draws_data = has_density and not censored
    if draws_data:
        observed = model[observation.name]
        of_data = model.replace_rvs_by_values(observed.owner.op.dist_params(observed.owner))
        of_data = pytensor.function(model.value_vars, of_data, mode="AS_WRITTEN", on_unused_input="ignore")
    known = [rv for rv in model.observed_RVs if rv.name.endswith("_observed")]  # entries of inputs, which stay
    joint = pm.do(model, {rv.name: value(model.rvs_to_values[rv]) for rv in known}) if known else model
    drawn = [joint[name] for name in [*names, output.name]]
    *prior, y = pm.draw(drawn, draws=3000, random_seed=3, mode="AS_WRITTEN")
    for name, x in zip(
        names, prior, strict=True
    ):  # cutpoints, whose prior is that of numbers that happen to be in order
        if isinstance(model.rvs_to_transforms[model[name]], type(transforms.ordered)):
            kept = (np.diff(x) > 0).all(axis=-1)
            prior, y = [x[kept] for x in prior], y[kept]
    prior = [unconstrained(model, name, x) for name, x in zip(names, prior, strict=True)]
    forward = functions(prior, y)
    point = {name: x[0] for name, x in zip(values, prior, strict=True)}
    if observation:
        point[output.name] = y[0]
    chain, data = [], []
    for _ in range(4 * draws):
        z, s, *scale = parameters(*(point[v.name] for v in model.value_vars))
        z = z + s * generator.normal(size=z.shape)
        if observation:
            point = {**point, output.name: z}
        if draws_data:
            y = observed.owner.op.rng_fn(generator, *of_data(*(point[v.name] for v in model.value_vars)), None)
        else:
            y = observation.label(z) if observation and not censored else z
        if scale:
            y = y + scale[0] * generator.standard_t(scale[1], size=y.shape)
        if censored:
            y = np.clip(y, *(np.ravel(value(x)) for x in (observation.lower, observation.upper)))
        model["y_data"].set_value(y.astype(model["y_data"].dtype))
        point, _ = step.step(point)
        chain.append([point[name] for name in values])
        data.append(point[output.name] if observation else y)
        if len(chain) % draws == 0:
            found = functions(zip(*chain, strict=True), data)
            pairs = zip(found.T, forward.T, strict=True)
            if all(az.ess(series[None], method="mean") > 400 for series, exact in pairs if np.ptp(exact) > 0):
                break
    return found, forward


def check_geweke(model, draws=3000, tune=0, **kwargs):
    chain, forward = geweke(model, draws, tune, **kwargs)
    for k in range(chain.shape[1]):
        if np.ptp(forward[:, k]) > 0:
            mcse = forward[:, k].std() / np.sqrt(len(forward))
            check_mean(chain[:, k], forward[:, k].mean(), f"function {k}", mcse)


GEWEKE = {
    "all": {},
    "langevin": {"interweave": "langevin"},
    "collapsed with scale": {"interweave": False},
    "collapsed": {"scale_move": False, "interweave": False},
    "plain": PLAIN,
    "plain with scale": {"collapse": False, "interweave": False},
    "plain with pieces": {"collapse": False, "scale_move": False},
    "plain with langevin": {"collapse": False, "scale_move": False, "interweave": "langevin"},
}


@pytest.mark.parametrize("kwargs", [(slow if kwargs else pytest.param)(kwargs, id=id) for id, kwargs in GEWEKE.items()])
def test_geweke(kwargs):
    draws = 6000 if kwargs.get("interweave") is False else 12_000
    check_geweke(network(hidden=2, noise=1.0), draws, **NUMBA, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hard tanh", "sign", "deep", "more outputs than units", "vector output", "table"])
def test_geweke_of_other_networks(name):
    check_geweke(network(**ARCHITECTURES[name] | {"noise": 1.0}), 8000 if name == "table" else 6000, **NUMBA)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["AS_WRITTEN", "NUMBA"])
def test_geweke_of_the_layer_parallel_order(mode):
    """Two layers of one shape, which are drawn as one batch, and a third."""
    model = network(hidden=[2, 2], noise=[1.0, 0.8, 1.2, 1.0, 0.9])
    check_geweke(model, 8000 if mode == "AS_WRITTEN" else 20_000, compile_kwargs={"mode": mode}, **PARALLEL)


def test_a_batch_of_layers_is_drawn_as_each_alone():
    """Where all draws are the means: the noise of a batch is not what is compared."""
    layers = [np.random.default_rng(i) for i in range(3)]
    a, z, w = (
        pt.constant(np.stack([layer.normal(size=shape) for layer in layers])) for shape in ((7, 3), (7, 2), (2, 3))
    )
    noise, precision = np.array([0.5, 1.0, 2.0]), np.abs(np.stack([layer.normal(size=(1, 3)) for layer in layers]))
    together = dense((2, 3)).gain(w, pt.constant(noise[:, None, None]), pt.constant(2 * noise[:, None, None]))
    apart = [dense((2, 3)).gain(w[i], pt.constant(noise[i]), pt.constant(2 * noise[i])) for i in range(3)]
    np.testing.assert_allclose(value(together), [value(g) for g in apart], rtol=1e-10)
    tiny = pt.constant(noise * 1e-24)  # the draw is then its mean
    gram, products = a.dimshuffle(0, 2, 1) @ a, a.dimshuffle(0, 2, 1) @ z
    regression = gram, products, tiny[:, None, None], pt.constant(precision)
    draws = compile_draw(lambda g: draw_weights(g, *regression, (3, 2, 3)))()
    for i in range(3):
        regression = gram[i], products[i], tiny[i], pt.constant(precision[i])
        alone = compile_draw(lambda g, regression=regression: draw_weights(g, *regression, (2, 3)))()
        np.testing.assert_allclose(draws[i], alone, rtol=1e-8)


def test_the_layer_parallel_order_is_not_collapsed():
    with pytest.raises(ValueError, match="pass collapse=False and interweave=False"):
        gibbs(network(), schedule="layer-parallel")


def test_geweke_with_asymmetric_noise():
    """The unequal variances of Z, A and y cannot be exchanged."""
    check_geweke(network(hidden=2, noise=[0.5, 1.0, 1.5]), 6000, **NUMBA)


@pytest.mark.slow
def test_geweke_with_priors_of_each_unit():
    """Weights and biases of each unit have deviations of their own, some of them learned."""
    with pm.Model() as model:
        W1 = pm.Normal("W1", 0, np.array([[0.4], [1.0], [0.7]]), shape=(3, 2))
        b1 = pm.Normal("b1", 0, [0.3, 1.0, 0.6], shape=3)
        A2 = pm.Normal("A2", pt.maximum(pm.Normal("Z2", X @ W1.T + b1, 1), 0), 1)
        scale = pm.Gamma("scale", 6, 5, shape=(2, 1))
        W2, b2 = pm.Normal("W2", 0, scale**-0.5, shape=(2, 3)), pm.Normal("b2", 0, [0.5, 1.0], shape=2)
        pm.Normal("y", A2 @ W2.T + b2, 1, observed=pm.Data("y_data", np.zeros((len(X), 2))))
    check_geweke(model, 6000, interweave=False, **NUMBA)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "draws"), [("AS_WRITTEN", 3000), ("JAX", 12_000)])
def test_geweke_in_other_backends(mode, draws):
    check_geweke(network(hidden=2, noise=1.0), draws, compile_kwargs={"mode": mode})


@pytest.mark.slow
def test_geweke_of_langevin_in_a_deep_network_with_few_samples():
    model = network(hidden=[2, 3], noise=1.0, x=rng.normal(size=(2, 3)), outputs=None)
    check_geweke(model, 6000, interweave="langevin")


def labelled(classes, hidden=2, prior=None, **kwargs):
    y = np.arange(len(X)) % classes
    return pmg.mlp(X, y, hidden, noise=1.0, prior=prior, likelihood="probit", **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "hidden", "prior"), [(2, 2, 1.0), (3, [], 1.0), (3, [], "learned")])
def test_geweke_with_labels(classes, hidden, prior):
    check_geweke(labelled(classes, hidden, prior=prior), 6000, tune=500, **NUMBA)


@pytest.mark.slow
def test_geweke_with_labels_in_a_compiled_backend():
    check_geweke(labelled(3, [2, 3]), 12_000, tune=500, compile_kwargs={"mode": "NUMBA"})


# Oracle 3: identity activation with fixed weights


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("NUMBA")])
@pytest.mark.parametrize("collapse", [True, False])
def test_latents_of_a_linear_network(collapse, mode):
    """With σ the identity, (Z, A) given y and the weights is Gaussian; each row of many is a chain of its own."""
    n, h, c = 4000, 2, 1
    dz, da, dy = 0.5, 0.3, 0.2
    m, y, w = np.array([0.4, -0.3]), np.array([0.7]), np.array([[1.0, -0.6]])
    g = value(dense((c, h)).gain(pt.constant(w), pt.constant(da), pt.constant(dy)))
    rows = [pt.constant(np.tile(x, (n, 1))) for x in (m, y)]
    identity = ACTIVATIONS["identity"]

    def build(rng):
        m_, y_ = rows
        z, a = m_, m_
        for _ in range(8):
            if collapse:
                rng, z = draw_preactivations_collapsed(
                    rng, z, m_, y_, pt.constant(w), pt.constant(g), pt.constant(dz), identity
                )
            maps = lambda a: a @ w.T, lambda r: r @ (da * g)
            rng, a = draw_postactivations(rng, z, pt.constant(da), y_, *maps, pt.constant(dy))
            if not collapse:
                rng, z = draw_preactivations(rng, z, m_, a, pt.constant(dz), pt.constant(da), identity)
        return rng, z, a

    prior = np.block([[dz * np.eye(h), dz * np.eye(h)], [dz * np.eye(h), (dz + da) * np.eye(h)]])
    lift = np.c_[np.zeros((c, h)), w]
    k = prior @ lift.T @ np.linalg.inv(lift @ prior @ lift.T + dy * np.eye(c))
    mean = np.r_[m, m] + k @ (y - w @ m)
    z, a = compile_draw(build, mode)()
    from tests.helpers import check_moments

    check_moments(np.c_[z, a], mean, prior - k @ lift @ prior)


# Oracle 2: a teacher is a draw of the posterior


@pytest.mark.slow
def test_rank_of_the_teacher_is_uniform():
    model = network(hidden=2, noise=1.0, outputs=1)
    step = gibbs(model)
    names = [v.name for v in model.free_RVs]
    teachers = pm.draw([*(model[name] for name in names), model["y"]], draws=200, random_seed=8, mode="AS_WRITTEN")
    ranks = []
    for *teacher, y in zip(*teachers, strict=True):
        model.set_data("y_data", y)
        point = model.initial_point()
        draws = []
        for sweep in range(200 + 19 * 20):
            point, _ = step.step(point)
            if sweep >= 200 and sweep % 20 == 0:
                draws.append((point["W1"] ** 2).sum() + (point["W2"] ** 2).sum())
        teacher = dict(zip(names, teacher, strict=True))
        ranks.append(np.sum((teacher["W1"] ** 2).sum() + (teacher["W2"] ** 2).sum() > np.array(draws)))
    counts = np.bincount(np.array(ranks) // 2, minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-3, counts


# Oracles 9 and 17


def equilibrium(model, sweeps, **kwargs):
    step = gibbs(model, **kwargs)
    point, points = model.initial_point(), []
    for _ in range(sweeps):
        point, _ = step.step(point)
        points.append(point)
    return points[sweeps // 10 :]


@pytest.mark.slow
def test_the_score_has_mean_zero():
    x = np.random.default_rng(4).normal(size=(12, 2))
    model = network(hidden=2, x=x, noise=0.5)
    score = model.compile_dlogp(mode="AS_WRITTEN")
    scores = np.array([score(point) for point in equilibrium(model, 2500, **NUMBA)])
    for k, series in enumerate(scores.T):
        check_mean(series, 0.0, f"score {k}")


@pytest.mark.slow
def test_nuts_on_the_same_model():
    x = np.random.default_rng(6).normal(size=(6, 1))
    y = np.maximum(x[:, 0], 0) - 0.5
    model = pmg.mlp(x, y, 2, noise=0.4, prior=None)
    check_against_nuts(model, np.linspace(-2, 2, 5)[:, None], **FAST)


def check_against_nuts(model, points, **kwargs):
    """Oracle 17: the outputs at some inputs have the distribution that NUTS finds."""
    with model:
        # as NUTS sees sharp corners, a small step
        nuts = pm.sample(
            1000, tune=500, chains=2, cores=2, nuts={"target_accept": 0.95}, progressbar=False, random_seed=1
        )
        ours = pm.sample(
            4000, tune=200, chains=2, cores=2, step=pmg.GibbsNN(**kwargs), progressbar=False, random_seed=2
        )
        series = [pmg.function_space(idata, X_new=points)["output"].values for idata in (ours, nuts)]
    check_same_distribution(*({f"output {k}": outputs[..., k] for k in range(len(points))} for outputs in series))

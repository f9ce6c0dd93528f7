"""What the reader knows, and that it names what it does not know."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.activations import ACTIVATIONS
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import PYTHON, value

N, D, H = 6, 3, 4
X = np.random.default_rng(0).normal(size=(N, D))
Y = np.random.default_rng(1).normal(size=(N, 2))


def hidden_layer(x=X):
    w = pm.Normal("W1", 0, 1, shape=(H, D))
    b = pm.Normal("b1", 0, 2, shape=H)
    z = pm.Normal("Z2", pt.as_tensor(x) @ w.T + b, 0.1)
    return pm.Normal("A2", pm.math.maximum(z, 0), 0.2)


def plain():
    with pm.Model() as model:
        a = hidden_layer()
        w = pm.Normal("W2", 0, 0.5, shape=(2, H))
        pm.Normal("y", a @ w.T, 0.3, observed=Y)
    return model


def test_a_plain_network():
    network = read_network(plain())
    first, last = network.layers
    assert [v.name for v in network.variables] == ["W1", "b1", "W2", "Z2", "A2"]
    assert (first.shape, first.operator.layout, first.operator.has_bias) == ((H, D), "rows", True)
    assert (last.shape, last.operator.layout, last.operator.has_bias) == ((2, H), "rows", False)
    assert network.activations[0].function == ACTIVATIONS["relu"]
    np.testing.assert_allclose(first.noise.eval(), 0.01)
    np.testing.assert_allclose(network.activations[0].noise.eval(), 0.04)
    np.testing.assert_allclose(first.operator.precision.eval(), [[1, 1, 1, 0.25]])
    np.testing.assert_allclose(last.operator.precision.eval(), np.full((1, H), 4))


OUTPUTS = {
    "rows": (lambda a: a @ pm.Normal("W2", shape=(2, H)).T, Y, "rows"),
    "columns": (lambda a: a @ pm.Normal("W2", shape=(H, 2)), Y, "columns"),
    "turned": (lambda a: pm.math.dot(pm.Normal("W2", shape=(2, H)), a.T).T, Y, "rows"),
    "vector": (lambda a: a @ pm.Normal("W2", shape=H) + pm.Normal("b2"), Y[:, 0], "vector"),
    "squeezed": (lambda a: (a @ pm.Normal("W2", shape=(1, H)).T)[:, 0] + pm.Normal("b2"), Y[:, 0], "rows"),
    "bias as a row": (lambda a: a @ pm.Normal("W2", shape=(2, H)).T + pm.Normal("b2", shape=(1, 2)), Y, "rows"),
    "deterministic": (lambda a: pm.Deterministic("mean", a @ pm.Normal("W2", shape=(2, H)).T), Y, "rows"),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_ways_to_write_a_layer(case):
    mean, y, layout = OUTPUTS[case]
    with pm.Model() as model:
        pm.Normal("y", mean(hidden_layer()), 0.3, observed=y)
        step = pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"}, rng=0)
    assert read_network(model).layers[-1].operator.layout == layout
    point, [stats] = step.step(model.initial_point())
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-8, atol=1e-6)
    assert {name: x.shape for name, x in point.items()} == {n: x.shape for n, x in model.initial_point().items()}


def test_a_column_of_biases_is_left_to_another_step():
    with pm.Model():
        mean = hidden_layer() @ pm.Normal("W2", shape=(2, H)).T + pm.Normal("b2", shape=(2, 1)).T
        pm.Normal("y", mean, 0.3, observed=Y)
        assert [v.name for v in pmg.GibbsNN().transition.variables] == ["W1", "b1", "W2", "Z2", "A2"]


SCALES = {
    "by input": (np.arange(1.0, D + 1), (H, D), lambda w: w.T),
    "by unit": (np.arange(1.0, H + 1)[:, None], (H, D), lambda w: w.T),
    "each": (np.arange(1.0, H * D + 1).reshape(H, D), (H, D), lambda w: w.T),
    "columns, by unit": (np.arange(1.0, H + 1), (D, H), lambda w: w),
    "columns, by input": (np.arange(1.0, D + 1)[:, None], (D, H), lambda w: w),
}


@pytest.mark.parametrize("case", SCALES)
def test_priors_of_any_constant_scale(case):
    scale, shape, turn = SCALES[case]
    with pm.Model() as model:
        w = pm.Normal("W1", 0, scale, shape=shape)
        b = pm.Normal("b1", 0, np.arange(1, H + 1), shape=H)
        z = pm.Normal("Z2", X @ turn(w) + b, 0.1)
        a = pm.Normal("A2", abs(z), 0.1)
        pm.Normal("y", a @ pm.Normal("W2", shape=(H, 2)), 0.3, observed=Y)
        step = pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"}, rng=0)
    sd = turn(np.broadcast_to(scale, shape)).T
    expected = 1 / np.c_[sd, np.arange(1, H + 1)] ** 2
    np.testing.assert_allclose(
        np.broadcast_to(read_network(model).layers[0].operator.precision.eval(), (H, D + 1)), expected
    )
    point, [stats] = step.step(model.initial_point())
    np.testing.assert_allclose(stats["lp"], model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-8, atol=1e-6)


def test_scales_that_are_variables_enter_as_such():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", hidden_layer() @ pm.Normal("W2", 0, sigma, shape=(H, 2)), sigma, observed=Y)
        step = pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"}, rng=0)
    point, [stats] = step.step(model.initial_point())
    sigma_prior = model.compile_logp(vars=[model["sigma"]], mode="AS_WRITTEN")(point)
    np.testing.assert_allclose(
        stats["lp"] + sigma_prior, model.compile_logp(mode="AS_WRITTEN")(point), rtol=1e-8, atol=1e-6
    )


def test_linear_regression_is_a_network_without_hidden_layers():
    with pm.Model() as model:
        pm.Normal("y", X @ pm.Normal("w", shape=D) + pm.Normal("b"), 0.3, observed=Y[:, 0])
    assert len(read_network(model).layers) == 1


def sigmas(sigma):
    return lambda: pm.Normal("y", hidden_layer() @ pm.Normal("W2", shape=(H, 2)), sigma, observed=Y)


def deterministic_activation():
    w = pm.Normal("W1", shape=(D, H))
    z = pm.Normal("Z2", X @ w, 0.1)
    pm.Normal("y", pm.math.maximum(z, 0) @ pm.Normal("W2", shape=(H, 2)), 1, observed=Y)


def no_activation():
    z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(D, H)), 0.1)
    pm.Normal("y", z @ pm.Normal("W2", shape=(H, 2)), 1, observed=Y)


def shared_weights():
    w = pm.Normal("W", shape=(D, D))
    z = pm.Normal("Z2", X @ w, 0.1)
    a = pm.Normal("A2", pm.math.maximum(z, 0), 0.1)
    z = pm.Normal("Z3", a @ w, 0.1)
    a = pm.Normal("A3", pm.math.maximum(z, 0), 0.1)
    pm.Normal("y", a @ pm.Normal("W2", shape=(D, 2)), 1, observed=Y)


def latent_twice():
    a = hidden_layer()
    pm.Normal("other", a.sum(), 1, observed=0.0)
    pm.Normal("y", a @ pm.Normal("W2", shape=(H, 2)), 1, observed=Y)


def potential():
    a = hidden_layer()
    pm.Potential("penalty", -(a**2).sum())
    pm.Normal("y", a @ pm.Normal("W2", shape=(H, 2)), 1, observed=Y)


def prior_mean():
    pm.Normal("y", hidden_layer() @ pm.Normal("W2", 1, 1, shape=(H, 2)), 1, observed=Y)


def laplace():
    pm.Normal("y", hidden_layer() @ pm.Laplace("W2", 0, 1, shape=(H, 2)), 1, observed=Y)


def poisson():
    pm.Poisson("y", pm.math.exp(hidden_layer() @ pm.Normal("W2", shape=(H, 2))), observed=np.ones((N, 2)))


def wrong_output():
    pm.Normal("y", hidden_layer() @ pm.Normal("W2", shape=(H, 1)), 1, observed=Y)


def missing():
    pm.Normal("y", hidden_layer() @ pm.Normal("W2", shape=(H, 2)), 1, observed=pm.Data("y_data", Y))
    pm.set_data({"y_data": np.where(Y[0, 0] == Y, np.nan, Y)})


def bad_input():
    bad = X.copy()
    bad[0, 0] = np.inf
    pm.Normal("y", hidden_layer(bad) @ pm.Normal("W2", shape=(H, 2)), 1, observed=Y)


def nothing_observed():
    hidden_layer()


def sigma_of_the_network():
    a = hidden_layer()
    w = pm.Normal("W2", shape=(H, 2))
    pm.Normal("y", a @ w, pm.math.exp(w[0, 0]), observed=Y)


def two_inputs():
    z = pm.Normal("Z2", X @ pm.Normal("v", shape=(D, 2)) + X**2 @ pm.Normal("w", shape=(D, 2)), 1)
    a = pm.Normal("A2", pm.math.maximum(z, 0), 1)
    pm.Normal("y", a @ pm.Normal("W2", shape=(2, 2)), 1, observed=Y)


def weights_twice():
    w = pm.Normal("W2", shape=(H, 2))
    pm.Normal("y", hidden_layer() @ w + w.sum(), 1, observed=Y)


def flat_scale():
    delta = pm.HalfFlat("delta")
    pm.Normal("y", hidden_layer() @ pm.Normal("W2", shape=(H, 2)), pm.math.sqrt(delta), observed=Y)


def bad_prior():
    delta = pm.InverseGamma("delta", -1, 1)
    pm.Normal("y", hidden_layer() @ pm.Normal("W2", shape=(H, 2)), pm.math.sqrt(delta), observed=Y)


REFUSED = [
    (sigmas(0.0), "sigma of 'y' must be positive"),
    (sigmas(-1.0), "sigma of 'y' must be positive"),
    (sigmas(np.ones(2)), "sigma of 'y' has shape"),
    (deterministic_activation, "'Z2' enters 'y' .* carries no noise"),
    (no_activation, "'Z2' enters the next layer without a noisy post-activation"),
    (shared_weights, "'W' serves twice"),
    (latent_twice, "'A2' must enter 'y' and nothing else; it is used by .*other"),
    (potential, "'A2' .* used by .*penalty"),
    (prior_mean, "prior of 'W2' must have mean 0; found 1. On data .* X @ M .* PCN, PCNL, MALA and NUTS take any mean"),
    (laplace, "'W2' must be pm.Normal .* found Laplace"),
    (poisson, r"'y' is Poisson, .* no output .* pm.Poisson\('y', pm.math.exp\(Z\), observed=...\). FNBG"),
    (wrong_output, "'y' has shape .* but its mean has shape"),
    (missing, "data of 'y' holds 1 values that are NaN"),
    (bad_input, "input data holds 1 values that are NaN or infinite"),
    (nothing_observed, "observes nothing"),
    (sigma_of_the_network, "'W2'"),
    (two_inputs, "'Z2' holds two products"),
    (weights_twice, "'W2' enters the mean of 'y' twice"),
    (flat_scale, "prior of 'delta', in the scale of 'y', is improper"),
    (bad_prior, "alpha of the prior of 'delta' must be positive"),
]


def output(mean, **likelihood):
    """A network whose last layer has this mean of A2."""

    def build():
        kwargs = {"sigma": 0.1, "observed": Y} | likelihood
        pm.Normal("y", mean(hidden_layer()), **kwargs)

    return build


def activation(function):
    def build():
        z = pm.Normal("Z2", X @ pm.Normal("W1", shape=(D, H)), 0.1)
        pm.Normal("y", pm.Normal("A2", function(z), 0.1) @ pm.Normal("W2", shape=(H, 2)), 0.1, observed=Y)

    return build


def minibatch():
    x, y = pm.Minibatch(X, Y, batch_size=3)
    pm.Normal("y", x @ pm.Normal("W1", shape=(D, 2)), 0.1, observed=y, total_size=N)


def two_outputs():
    a = hidden_layer()
    pm.Normal("u", a @ pm.Normal("V2", shape=H), 0.1, observed=Y[:, 0])
    pm.Normal("y", a @ pm.Normal("W2", shape=(H, 2)), 0.1, observed=Y)


def w2(*shape, name="W2"):
    return pm.Normal(name, shape=shape or (H, 2))


GROUP = np.arange(N) % 2
T = np.arange(N, dtype=float)[:, None] % 2


def layer_of(x, columns=D):
    """A network whose first layer takes this input, or has this mean."""

    def build():
        mean = x() if columns is None else x() @ pm.Normal("W1", shape=(columns, H))
        z = pm.Normal("Z2", mean, 0.1)
        pm.Normal("y", pm.Normal("A2", pm.math.maximum(z, 0), 0.1) @ w2(), 0.1, observed=Y)

    return build


def embedding():
    return pt.concatenate([w2(2, D, name="E")[GROUP], X], axis=1)


def inputs_that_nothing_measures():
    return pm.Normal("x", pm.Normal("centre", shape=D), 1, shape=(N, D))


REFUSED += [
    (layer_of(embedding, 2 * D), r"'E' enters 'Z2' .* rows of a variable, .* np.eye\(k\)\[group\], .* MALA"),
    (
        layer_of(lambda: (X[:, :, None] * w2(2, D, H, name="W1")[GROUP]).sum(axis=1), None),
        r"each row has weights of its own, W1\[...\], .* np.eye\(k\)\[group\], .* MALA",
    ),
    (
        layer_of(lambda: pt.einsum("nd,ndh->nh", X, w2(2, D, H, name="W1")[GROUP]), None),
        r"each row has weights of its own, W1\[...\], .* MALA",
    ),
    (output(lambda a: (a[:, :, None] * w2(2, H, 2)[GROUP]).sum(axis=1)), r"weights of its own, W2\[...\], .* MALA"),
    (
        layer_of(lambda: w2(N, D, name="x")),
        "'x' enters a layer, where inputs are data .* found 0. .* NUTS, MALA",
    ),
    (layer_of(lambda: pm.Uniform("x", shape=(N, D))), "'x' enters a layer, .* found Uniform"),
    (layer_of(inputs_that_nothing_measures), "'x' enters a layer, .* found centre"),
    (layer_of(lambda: X * pm.HalfNormal("s", shape=D)), r"'s' enters 'Z2' .* prior .* pm.Normal\('W', 0, s, ...\)"),
    (output(lambda a: a @ (pm.Normal("m") + 0.1 * w2())), r"product with m \+ .* a variable whose prior has mean 0"),
    (
        output(lambda a: T * (a @ w2())),
        r"A2 @ W2 is multiplied by what differs between rows: .* pm.Normal\('tau', A2 @ W2, s\), and write t \* tau",
    ),
    (
        output(lambda a: pm.Normal("s", shape=(2, 1))[GROUP] * (a @ w2())),
        "A2 @ W2 is multiplied by what .* a latent of its own",
    ),
    (output(lambda a: pm.math.exp(a @ w2())), "product A2 @ W2 of a layer must be a term by itself. FNBG, .* MALA"),
    (output(lambda a: pm.math.switch(T, a @ w2(), 0)), "product A2 @ W2 of a layer must be a term by itself. FNBG"),
    (output(lambda a: (T * a) @ w2()), "'A2' enters 'y' .* is multiplied by what differs between rows"),
]
REFUSED += [
    (output(lambda a: (a @ w2()) * pm.HalfNormal("s")), r"mean of 'y' is \(A2 @ W2\) \* s, .* into its prior"),
    (output(lambda a: a @ (w2() * pm.HalfNormal("s"))), r"product with .*W2.*, .* factor into its prior"),
    (output(lambda a: 0 * (a @ w2()) + pm.Normal("b2", shape=2)), "holds A2 @ W2 times 0, .* leave out what is"),
    (output(lambda a: 1e-200 * (a @ (1e-200 * w2()))), "holds 'W2' times 0, .* numbers below 1e-308 are 0"),
    (output(lambda a: np.inf * (a @ w2())), "holds 'W2' times inf, where a factor is a finite number"),
    (output(lambda a: a @ pt.tanh(w2())), r"product with tanh\(W2\), .* a variable with a Normal prior"),
    (output(lambda a: a @ np.ones((H, 2))), r"product with array\(4, 2\), .* a variable instead of numbers"),
    (output(lambda a: (a**2 * w2(H)).sum(axis=1), observed=Y[:, 0]), "which carries no noise"),
    (output(lambda a: pt.einsum("ij,jk->ik", a, w2())), r"einsum\(A2, W2\), where a product is written A @ W"),
    (output(lambda a: a), r"mean of 'A2' is maximum\(Z2, 0\), where a layer is A @ W.T"),
    (output(lambda a: (2 + a) @ w2()), r"'A2' enters 'y' through 2 \+ A2, which carries no noise"),
    (
        output(lambda a: pt.concatenate([a, X], axis=1) @ w2(H + D, 2)),
        r"'A2' enters 'y' in concatenate\(\[A2, array\(6, 3\)\]\), .* skip a layer are not known",
    ),
    (output(lambda a: a @ w2(), sigma=np.full((N, 2), 0.1)), r"sigma of 'y' has shape \(6, 2\); .* one number .* NUTS"),
    (
        output(lambda a: a @ w2(), sigma=np.full((N, 1), 0.1)),
        "sigma of 'y' differs between rows, and that of 'A2', 'Z2'",
    ),
    (
        output(lambda a: a @ w2(), observed=np.where(Y[0, 0] == Y, np.nan, Y)),
        "'y' has missing values, .* drop",
    ),
    (output(lambda a: a @ pm.Normal("W2", pm.Normal("m"), 1, shape=(H, 2))), "'W2' must have mean 0; found m"),
    (
        output(lambda a: a @ pm.Normal("W2", shape=(2, 1, H)).squeeze(1).T),
        "The mean of 'y' is A2 @ W2.*, where a layer is A @ W.T",
    ),
    (activation(lambda z: pm.math.softmax(z, axis=1)), r"activation softmax\(Z2\) of 'A2' is no elementwise"),
    (activation(lambda z: pt.maximum(z, np.arange(H))), r"activation maximum\(Z2, array\(1, 4\)\) .* shape \(1, 4\)"),
    (activation(lambda z: pt.maximum(z, pm.Normal("s") * z)), r"are numbers; found maximum\(Z2, s \* Z2\)"),
    (activation(lambda z: z[:, ::-1]), r"activation Z2\[...\] of 'A2'"),
    (minibatch, r"'y' observes a minibatch, .* pmg.FNBG\(\)"),
    (two_outputs, r"'A2' must enter .* columns of one output: observe np.column_stack"),
    (
        lambda: pmg.ArgmaxLabel("y", hidden_layer() @ w2(), observed=np.arange(N) % 2),
        r"labels 'y' are of A2 @ W2, .* Z = pm.Normal\('Z', A2 @ W2, sigma\), and observe pmg.ArgmaxLabel\('y', Z\)",
    ),
    (
        lambda: pm.Categorical("y", logit_p=hidden_layer() @ w2(), observed=np.arange(N) % 2),
        r"'y' is Categorical, .* probit .* pmg.ArgmaxLabel\('y', Z, observed=...\)",
    ),
    (
        lambda: pm.Bernoulli("y", logit_p=hidden_layer() @ w2(H), observed=np.arange(N) % 2),
        r"'y' is Bernoulli, .* pmg.SignLabel\('y', Z, observed=...\)",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused_by_name(build, message):
    with pm.Model() as model:
        build()
        with pytest.raises(NetworkError, match=message) as refusal:
            pmg.GibbsNN(model=model, compile_kwargs={"mode": "AS_WRITTEN"})
    words = str(refusal.value)
    assert len(words) < 480
    assert not any(raw in words for raw in ("[[", "RNG(", "_rv", "Subtensor", "\\dot", "float64"))


def test_latents_that_are_set_by_hand_are_named():
    """``pm.do`` writes them in a way that the graph of a model written by hand does not have."""
    model = pm.do(pmg.mlp(np.zeros((4, 2)), np.zeros(4), 3, noise=0.1, prior=None), {"Z2": np.zeros((4, 3))})
    with pytest.raises(NetworkError, match=r"'A2' enters a layer, .* found switch\(gt\(Z2, 0\), Z2, 0\)"):
        pmg.GibbsNN(model=model)


def test_inputs_that_do_not_fit_the_weights():
    with pm.Model() as model:
        x = pm.Data("X", X)
        pm.Normal("y", x @ pm.Normal("w", shape=D), 1, observed=Y[:, 0])
        pm.set_data({"X": X[:4]})
        with pytest.raises(NetworkError, match="shape"):
            read_network(model)


def test_large_offsets_of_inputs_are_warned_of():
    with pytest.warns(UserWarning, match="Column 1 of the input data has mean 1e\\+08 .* subtract the mean"):
        read_network(pmg.mlp(X + np.array([0, 1e8, 0]), Y, 2, noise=0.1, prior=None))
    images = X.reshape(N, 1, 3) + np.array([0, 0, 1e8])
    with pytest.warns(UserWarning, match="Number 2 of the flattened images has mean"):
        read_network(pmg.cnn(images, Y[:, 0], 1, size=1, pool=None, noise=0.1, prior=None))
    models = [
        pmg.mlp(np.c_[X + 1e4, np.full(N, 0.1), np.full(N, 1e9)], Y, 2, noise=0.1, prior=None),
        pmg.mlp(1e200 * X, Y, 2, noise=0.1, prior=None),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in models:
            read_network(model)


def treatment_effect(noise):
    """A network for the outcome without a treatment T, and one for the effect of the treatment."""
    with pm.Model() as model:
        effect = pm.math.maximum(X @ pm.Normal("U1", shape=(D, H)), 0)
        if noise:
            effect = pm.Normal("Au", pm.Normal("Zu", effect.owner.inputs[0], noise), noise)
        pm.Normal("y", hidden_layer() @ w2() + T * (effect @ w2(name="U2")), 0.1, observed=Y)
    return model


def test_latents_that_are_left_to_other_steps_are_warned_of():
    with pytest.warns(UserWarning, match=r"leaves \['Zu', 'Au'\], 48 numbers, .* pm.Normal\('tau', Au @ U2, s\)"):
        step = pmg.GibbsNN(model=treatment_effect(0.1), compile_kwargs=PYTHON)
    assert [v.name for v in step.vars] == ["W1", "b1", "W2", "Z2", "A2"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = treatment_effect(None)
        pmg.GibbsNN(model=model, compile_kwargs=PYTHON)
        model = treatment_effect(0.1)
        pmg.GibbsNN([model[name] for name in ("W1", "b1", "W2", "Z2", "A2")], model=model, compile_kwargs=PYTHON)


def test_a_product_of_data_with_numbers_is_an_offset():
    """So the mean of weights on data may be written, in a hidden layer, too."""
    with pm.Model() as model:
        x = pm.Data("X", X)
        z = pm.Normal("Z2", x @ np.ones((D, H)) + x @ pm.Normal("W1", shape=(D, H)), 0.1)
        pm.Normal("y", pm.Normal("A2", pm.math.maximum(z, 0), 0.1) @ w2(), 0.1, observed=Y)
    first, _ = read_network(model).layers
    np.testing.assert_allclose(first.offset.eval(), X @ np.ones((D, H)))


def test_an_empty_model():
    with pytest.raises(ValueError, match="No free random variables"), pm.Model():
        pmg.GibbsNN()


def test_vars_must_be_the_whole_network():
    model = plain()
    read_network(model, model.free_RVs)
    with pytest.raises(NetworkError, match=r"missing \['A2', 'Z2'\]"):
        read_network(model, [model["W1"], model["W2"]])


def test_two_networks_need_vars():
    with pm.Model() as model:
        pm.Normal("u", X @ pm.Normal("v", shape=D), 1, observed=Y[:, 0])
        pm.Normal("y", X @ pm.Normal("w", shape=D), 1, observed=Y[:, 1])
    with pytest.raises(NetworkError, match="'v', 'w'"):
        read_network(model)
    assert read_network(model, [model["w"]]).layers[0].name == "y"


@pytest.mark.parametrize("likelihood", ["normal", "bernoulli"])
def test_a_minibatch_of_a_classical_network_points_to_its_sampler(likelihood):
    targets = Y[:, 0] if likelihood == "normal" else (Y[:, 0] > 0).astype(int)
    model = pmg.classical_mlp(X, targets, 2, likelihood=likelihood, batch_size=2, total_size=len(X))
    with pytest.raises(NetworkError, match=r"'y' observes a minibatch, .* pmg.FNBG\(\)"):
        pmg.GibbsNN(model=model)


@pytest.mark.parametrize("sigma", [12, 16, 100, 200])  # PyTensor keeps these in 8 or 16 bits, where squares do not fit
def test_standard_deviations_may_be_whole_numbers(sigma):
    with pm.Model() as model:
        z = pm.Normal("Z2", X @ pm.Normal("W1", 0, sigma, shape=(H, D)).T, sigma)
        a = pm.Normal("A2", pm.math.maximum(z, 0), sigma)
        z = pm.Normal("Z3", a @ pm.Normal("W2", 0, sigma, shape=(2, H)).T, sigma)
        pm.StudentT("y", 127, z, sigma=sigma, observed=Y)
    network = read_network(model)
    noises = [part.noise for part in (*network.layers, *network.activations)] + [network.observation.noise]
    np.testing.assert_allclose([noise.eval() for noise in noises], sigma**2)
    np.testing.assert_allclose(network.layers[0].operator.precision.eval(), sigma**-2)
    assert network.observation.degrees.eval() + np.int8(1) == 128


def test_a_learned_variance_may_be_divided_by_the_length_of_an_axis():
    with pm.Model() as model:
        x = pm.Data("X", X)
        v = pm.InverseGamma("v", 3, 2)
        w = pm.Normal("W1", 0, pt.sqrt(v / x.shape[1]), shape=D)
        pm.Normal("y", x @ w, pt.sqrt(v) / pm.Data("k", np.int32(4)), observed=Y[:, 0])
    [scale] = read_network(model).variances
    np.testing.assert_allclose([np.squeeze(value(use.coefficient)) for use in scale.uses], [1 / 4, D**-0.5])


DIFFERENCES = {  # a mean, the factor of its product, and its offset
    "subtracted": (lambda f, d, e: f - d, 1, lambda d, e: -d),
    "from data": (lambda f, d, e: d - f, -1, lambda d, e: d),
    "from a number": (lambda f, d, e: 2 - f, -1, lambda d, e: 2 + 0 * d),
    "nested": (lambda f, d, e: (f - d) - (e - 1) + 3 * d, 1, lambda d, e: 2 * d - e + 1),
    "of a sum": (lambda f, d, e: -(d + f / 2) + e, -0.5, lambda d, e: e - d),
    "twice a difference": (lambda f, d, e: 2 * (d - f), -2, lambda d, e: 2 * d),
    "ones": (lambda f, d, e: f + np.ones(N), 1, lambda d, e: 1 + 0 * d),
    "small integers": (lambda f, d, e: f - pm.Data("s", np.full(N, 200, "uint8")), 1, lambda d, e: 0 * d - 200),
}


@pytest.mark.parametrize("form", DIFFERENCES)
def test_products_and_offsets_may_be_subtracted(form):
    mean, factor, offset = DIFFERENCES[form]
    d, e = np.linspace(-1, 1, N), np.arange(N) % 3
    with pm.Model() as model:
        data = pm.Data("d", d), pm.Data("e", e)
        pm.Normal("y", mean(X @ pm.Normal("w", shape=X.shape[1]), *data), 0.1, observed=Y[:, 0])
    [layer] = read_network(model).layers
    assert layer.operator.factor == factor
    np.testing.assert_allclose(np.broadcast_to(value(layer.offset), (N, 1))[:, 0], offset(d, e), rtol=1e-12)


def test_offsets_of_small_integers_are_added_as_real_numbers():
    with pm.Model() as model:
        offsets = [pm.Data(name, np.full(N, 200, "uint8")) for name in "ab"]
        w = pm.Normal("W1", 0, 1, shape=D)
        pm.Normal("y", X @ w + offsets[0] + offsets[1], 0.1, observed=Y[:, 0])
    np.testing.assert_array_equal(value(read_network(model).layers[0].offset), np.full((N, 1), 400))

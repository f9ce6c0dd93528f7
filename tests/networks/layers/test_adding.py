"""The layer of docs/adding.rst, as that page adds it: it is read, started and sampled, and predictions know it."""

from unittest.mock import patch

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.deterministic import read_classical
from pymc_gibbsnn.networks.layers import KINDS
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.networks.reader import read_network
from pymc_gibbsnn.starts.fitted_start import can_be_fitted, fitted_start
from tests.helpers import dense, in_python, pm_sample, random_point, value
from tests.samplers.test_gibbs import NUMBA, check_geweke, gibbs
from tests.test_documents import DOCUMENTS

[PAGE] = [block for block in DOCUMENTS["docs/adding.rst"] if "class FixedMap" in block]
RNG = np.random.default_rng(0)
X, Y, K = RNG.normal(size=(5, 2)), RNG.normal(size=(5, 2)), RNG.normal(size=(3, 4))


@pytest.fixture(params=["as on the page", "with a gain"], autouse=True)
def kind(request):
    with patch.dict(KINDS):
        session = {"np": np, "__name__": __name__}
        exec(PAGE, session)

        class WithGain(session["FixedMap"]):
            has_gain = True

            def linear(self, w):
                return pt.constant(self.k)

        if request.param == "with a gain":
            KINDS["fixed_map"] = WithGain
        yield KINDS["fixed_map"]


def model():
    """The map between two layers, without an activation above it."""
    with pm.Model() as model:
        W1, b1 = pm.Normal("W1", 0, 1, shape=(4, 2)), pm.Normal("b1", 0, 0.5, shape=4)
        A2 = pm.Normal("A2", pm.math.tanh(pm.Normal("Z2", X @ W1.T + b1, 0.8)), 0.7)
        W3, b3 = pm.Normal("W3", 0, 0.6, shape=(2, 3)), pm.Normal("b3", 0, 0.5, shape=2)
        mean = pm.Normal("Z3", A2 @ K.T, 0.6) @ W3.T + b3
        pm.Normal("y", mean, 0.9, observed=pm.Data("y_data", Y), shape=mean.shape)
    return model


def test_it_is_read(kind):
    network = read_network(model())
    first, fixed, last = (layer.operator for layer in network.layers)
    assert isinstance(fixed, kind)
    np.testing.assert_array_equal(fixed.k, K)
    assert [first.name, fixed.name, last.name] == ["W1", kind.__name__, "W3"]
    assert [activation and activation.name for activation in network.activations] == ["A2", None]
    assert {v.name for v in network.variables} == {"W1", "b1", "Z2", "A2", "Z3", "W3", "b3"}


def test_it_answers_as_a_dense_layer_of_the_same_matrix(kind):
    a, r, noises = RNG.normal(size=(7, 4)), pt.constant(RNG.normal(size=(7, 3))), (pt.constant(0.3), pt.constant(0.05))
    operator, known, w = kind(K), dense(K.shape), pt.constant(K)
    np.testing.assert_allclose(operator.forward(a), known.forward(a, K))
    np.testing.assert_allclose(value(operator.forward(pt.constant(a))), known.forward(a, K))
    np.testing.assert_allclose(value(operator.correction(r, w, *noises)), value(known.correction(r, w, *noises)))
    assert (operator.row_shapes, operator.input_shapes) == (known.row_shapes, known.input_shapes)


@pytest.mark.parametrize("kwargs", [{}, {"collapse": False, "interweave": False}], ids=["default", "plain"])
def test_a_sweep(kwargs):
    """All numbers are drawn, and the log density is that of the model."""
    network = model()
    before = random_point(network, 1)
    after, [stats] = gibbs(network, **kwargs).step(before)
    assert all((after[name] != x).all() for name, x in before.items())
    assert {name for name in stats if name.startswith("norm_")} == {"norm_W1", "norm_W3"}
    np.testing.assert_allclose(stats["lp"], network.compile_logp(mode="AS_WRITTEN")(after), rtol=1e-9)


@pytest.mark.slow
def test_geweke():
    check_geweke(model(), 12_000, **NUMBA)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_starts_and_predictions():
    known = model()
    network = read_network(known)
    assert can_be_fitted(network)
    zero = {name: np.zeros_like(x) for name, x in random_point(known, 0).items()}
    start = fitted_start(network, zero, np.random.default_rng(1))
    np.testing.assert_allclose(start["Z3"], start["A2"] @ K.T)
    with in_python():
        idata = pm_sample(known, 6, tune=4)
    w = {name: idata["posterior"][name].values for name in ("W1", "b1", "W3", "b3")}
    new = RNG.normal(size=(3, 2))
    a = np.tanh(new @ w["W1"].mT + w["b1"][..., None, :])
    expected = a @ K.T @ w["W3"].mT + w["b3"][..., None, :]
    np.testing.assert_allclose(pmg.function_space(idata, known, X_new=new)["output"], expected)
    with in_python():
        predicted = pmg.predict(idata, known, X_new=new)
    assert np.isfinite(predicted["mean"]).all()


def test_a_classical_network_has_none():
    """Its samplers move weights between activations, and nothing else."""
    with pm.Model() as classical:
        W1, W2 = pm.Normal("W1", 0, 1, shape=(4, 2)), pm.Normal("W2", 0, 1, shape=(2, 3))
        pm.Normal("y", pm.math.tanh(pm.math.tanh(X @ W1.T) @ K.T) @ W2.T, 1, observed=Y)
    with pytest.raises(NetworkError, match=r"A layer of 'y' must be A @ W.T \+ b"):
        read_classical(classical)

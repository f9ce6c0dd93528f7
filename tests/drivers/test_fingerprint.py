"""What is compared before a run goes on."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pymc as pm
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers.fingerprint import differences, fingerprint_of_model, fingerprint_of_steps

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.maximum(X[:, 0], 0)


def network(x=X, y=Y, scale=1.0, factor=1.0, **noise):
    with pm.Model(coords={"unit": range(2)}) as model:
        data = pm.Data("X", x)
        w = pm.Normal("w", 0, scale, shape=2, dims="unit")
        f = pm.Deterministic("f", pm.math.tanh(data @ w) * factor)
        pm.Normal("y", f, 0.3, observed=y)
    return model


def test_the_same_model_has_one_fingerprint():
    assert differences(fingerprint_of_model(network()), fingerprint_of_model(network(X.copy(), Y.copy()))) == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"x": X + 1e-12}, ["the data 'X' is another one"]),
        ({"y": -Y}, ["the data 'y' is another one"]),
        ({"scale": 2.0}, ["the variable 'w' is another one"]),
        ({"factor": np.linspace(0, 1, 8)}, ["the variable 'f' is another one"]),
    ],
)
def test_what_has_changed_is_named(change, found):
    assert differences(fingerprint_of_model(network()), fingerprint_of_model(network(**change))) == found


def test_long_constants_and_potentials_count():
    def model(last):
        with network(factor=np.r_[np.ones(7), last]) as one:
            pm.Potential("p", one["w"].sum() ** 2)
        return one

    before = fingerprint_of_model(model(1.0))
    assert differences(before, fingerprint_of_model(model(1.0))) == []
    assert differences(before, fingerprint_of_model(model(1.5))) == ["the variable 'f' is another one"]
    assert differences(before, fingerprint_of_model(network(factor=np.ones(8)))) == ["the variable 'p' is gone"]
    assert differences(fingerprint_of_model(network(factor=np.ones(8))), before) == ["the variable 'p' is new"]


def test_densities_and_transformations_count():
    """Of a density that the user has written, and of a transformation, the expression holds no numbers."""

    def model(scale, bound):
        with pm.Model() as one:
            pm.CustomDist("a", logp=lambda value: -((value / scale) ** 2))
            transform = pm.distributions.transforms.Interval(-1, bound)
            b = pm.Normal("b", default_transform=None, transform=transform)
            pm.CustomDist("y", b, logp=lambda value, mean: -abs(value - mean) / scale, observed=Y)
            pm.Censored("z", pm.Normal.dist(b, 1), lower=0, upper=None, observed=Y)  # PyMC infers its density
        return one

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = fingerprint_of_model(model(1.0, 1.0))
    assert differences(before, fingerprint_of_model(model(1.0, 1.0))) == []
    changed = ["the variable 'a' is another one", "the variable 'y' is another one"]
    assert differences(before, fingerprint_of_model(model(2.0, 1.0))) == changed
    assert differences(before, fingerprint_of_model(model(1.0, 2.0))) == ["the variable 'b' is another one"]


def test_minibatches_have_a_fingerprint():
    def model(labels):
        return pmg.classical_mlp(X, labels, 2, likelihood="bernoulli", batch_size=4, total_size=8)

    labels = np.arange(8) % 2
    before = fingerprint_of_model(model(labels))
    assert differences(before, fingerprint_of_model(model(labels))) == []
    assert differences(before, fingerprint_of_model(model(1 - labels)))


def test_options_of_steps():
    model = pmg.mlp(X, Y, 3, noise=0.3, prior=None)
    before = fingerprint_of_steps([pmg.GibbsNN(model=model)])
    assert differences(before, fingerprint_of_steps([pmg.GibbsNN(model=model, collapse=True)])) == []
    assert differences(before, fingerprint_of_steps([pmg.GibbsNN(model=model, collapse=False)])) == [
        "the argument collapse of GibbsNN was 'True' and is 'False' now"
    ]
    assert differences(before, fingerprint_of_steps([pmg.GibbsNN(model=model, sweeps_per_draw=2)])) == [
        "the argument sweeps_per_draw of GibbsNN was 'auto' and is '2' now"
    ]
    classical = pmg.classical_mlp(X, np.arange(8) % 2, 3)
    one, two = (fingerprint_of_steps([pmg.FNBG(model=classical, scale=scale)]) for scale in (0.1, 0.2))
    assert differences(one, two) == ["the argument scale of FNBG was '0.1' and is '0.2' now"]
    assert any(line.startswith("the steps was ['GibbsNN']") for line in differences(before, one))


PRINT = """
import numpy as np, pymc_gibbsnn as pmg
from pymc_gibbsnn.drivers.fingerprint import fingerprint_of_model, fingerprint_of_steps

def everything():
    X, found = np.arange(16.0).reshape(8, 2), []
    for model in (pmg.mlp(X, X[:, 0], 3, noise="learned", activation="tanh"), pmg.classical_mlp(X, X[:, 0] > 2, 3)):
        found += [fingerprint_of_model(model), fingerprint_of_steps([pmg.FNBG(model=model)])]
    return found
"""


def test_it_is_the_same_in_every_process():
    session = {}
    exec(PRINT, session)
    other = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRINT + "print(everything())"],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "1"},
    )  # fmt: skip
    assert other.stdout.strip() == str(session["everything"]())

"""Convolutional networks in one call."""

import numpy as np
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn.models.teachers import check_teacher
from pymc_gibbsnn.networks.reader import read_network
from tests.helpers import LEAN, pm_sample, value

RNG = np.random.default_rng(3)
X = RNG.normal(size=(8, 6, 6))
LABELS = np.arange(8) % 3


def test_the_network_of_the_paper():
    images, labels = np.zeros((10, 28, 28)), np.arange(10)
    model = pmg.cnn(images, labels, 2, size=4, stride=2, pool=2, noise=10, likelihood="probit", prior=None)
    network = read_network(model)
    assert [layer.shape for layer in network.layers] == [(338, 784), (72, 338), (10, 72)]
    assert [activation and activation.name for activation in network.activations] == [None, "A2"]
    assert [v.name for v in network.weights] == ["W1", "b1", "W2", "b2"]
    np.testing.assert_allclose(value(network.layers[0].operator.precision), np.full((1, 17), 16))
    np.testing.assert_allclose(value(network.layers[2].operator.precision), np.full((1, 73), 72))
    np.testing.assert_allclose([value(noise) for noise in network.noises.values()], 100)


def test_several_layers():
    y, images = RNG.normal(size=(8, 2)), RNG.normal(size=(8, 2, 7, 8))
    model = pmg.cnn(
        images, y, [3, 2], size=[(2, 3), 2], stride=[1, (2, 1)], padding=[0, 1], pool=[None, 2], hidden=4,
        noise=["learned", *[0.1] * 7], prior="learned", bias=False,
    )  # fmt: skip
    network = read_network(model)
    assert [v.name for v in network.latents] == ["Z2", "A2", "Z3", "P3", "A3", "Z4", "A4"]
    assert [layer.shape for layer in network.layers] == [(108, 112), (56, 108), (12, 56), (4, 12), (2, 4)]
    names = ["variance_Z2", "precision_W1", "precision_W2", "precision_W3", "precision_W4"]
    assert [variance.name for variance in network.variances] == names


def test_sample_predict_and_evaluate():
    with pmg.cnn(X, LABELS, 2, pool=2, noise=0.5, likelihood="probit", prior="learned") as model:
        start = pmg.initial_values(model, "prior", random_seed=1)
        step = pmg.GibbsNN(anneal=1.0, compile_kwargs={"mode": "AS_WRITTEN"}, **LEAN)
        idata = pm_sample(model, 10, step=step, tune=5, initvals=start)
        found = pmg.predict(idata, X_new=X[:5])
        space, other = (pmg.function_space(idata, X_new=x) for x in (X[:4], X[:4, None]))
    np.testing.assert_allclose(found["probability"].sum("class"), 1)
    assert space["output"].shape == (2, 10, 4, 3)
    np.testing.assert_array_equal(space["output"], other["output"])
    draw = idata["posterior"].isel(chain=1, draw=3)
    z = value(pmg.conv2d(X[:4, None], draw["W1"].values)) + draw["b1"].values[:, None, None]
    a = np.maximum(z.reshape(4, 2, 2, 2, 2, 2).mean((3, 5)), 0).reshape(4, -1)
    np.testing.assert_allclose(space["output"][1, 3], a @ draw["W2"].values.T + draw["b2"].values)
    assert space["norm"].shape == (2, 10, 2)


def test_teachers():
    study = pmg.teacher_student(pmg.cnn(X, X[:, 0, 0], 2, pool=2, noise=0.3, prior=None), random_seed=1, n_test=7)
    assert (study.X.shape, study.X_test.shape, study.f_test.shape) == ((8, 6, 6), (7, 6, 6), (7,))
    check_teacher(study)
    assert "score" in study.model.named_vars


def test_inputs_of_a_study_are_what_predict_takes():
    """Images without an axis of channels in the model's data have none in a study either."""
    for images in (X, X[:, None]):
        study = pmg.teacher_student(
            pmg.cnn(images, X[:, 0, 0], 2, pool=2, noise=0.3, prior=None), n=5, n_test=4, random_seed=1
        )
        weights = {name: x[None, None] for name, x in study.teacher.items() if name[0] in "Wb"}
        dims = {name: ("chain", "draw", *(f"{name}_{i}" for i in range(x.ndim - 2))) for name, x in weights.items()}
        posterior = xr.Dataset({name: (dims[name], x) for name, x in weights.items()})
        found = pmg.predict({"posterior": posterior}, X_new=study.X_test, model=study.model)
        assert found.sizes["point"] == 4


@pytest.mark.parametrize(("noise", "likelihood"), [("learned", "student"), (0.1, "normal")])
def test_outliers_are_allowed_for_where_the_noise_of_y_is_learned(noise, likelihood):
    model = pmg.cnn(X, X[:, 0, 0], 2, noise=noise)
    assert model.str_repr() == pmg.cnn(X, X[:, 0, 0], 2, noise=noise, likelihood=likelihood).str_repr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": X.reshape(8, -1)}, r"X must have shape .* found \(8, 36\) .*flattened images: reshape them"),
        ({"size": 7}, r"filters must fit into the images, which are \(6, 6\)"),
        ({"filters": [2, 2], "size": [3]}, "size must be an integer, a pair in a tuple, or a list of one for each of"),
        ({"filters": 0}, "filters must hold positive integers, one for each convolutional layer; found 0"),
        ({"filters": []}, r"filters must hold at least one number; mlp\(\) writes"),
        ({"pool": 5}, r"windows must fit into the images, which are \(4, 4\)"),
        ({"pool": "max"}, "pool must be a positive integer; found 'max'"),
        ({"noise": [1.0, 1.0]}, "noise must be .* one for each of Z2, A2, y, which are 3"),
        ({"prior": "relevance"}, "prior must be a precision"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pmg.cnn(**({"X": X, "y": X[:, 0, 0], "filters": 2} | arguments))


def test_channels_that_seem_to_be_last():
    message = r"\(8, 6, 6, 3\) is read as images of 6 channels .* pass X.transpose\(0, 3, 1, 2"
    with pytest.warns(UserWarning, match=message):
        pmg.cnn(np.repeat(X[..., None], 3, axis=3), X[:, 0, 0], 2, noise=0.1, prior=None)
    pmg.cnn(np.repeat(X[:, None], 3, axis=1), X[:, 0, 0], 2, noise=0.1, prior=None)  # and these are not

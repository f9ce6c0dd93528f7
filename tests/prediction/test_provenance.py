"""Draws are read with the model that they were made with, or one that differs from it by data alone."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn._compat import dataset_of
from pymc_gibbsnn.prediction.provenance import FINGERPRINT, model_fingerprint
from tests.helpers import in_python, pm_sample, pmg_sample

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 2)), RNG.normal(size=7)
LABELS = (Y > 0).astype(int)


def network(X=X, y=Y, **options):
    return pmg.mlp(X, y, 3, **{"noise": 0.1, "prior": None} | options)


RELU, TANH = network(), network(activation="tanh")


def by_hand(activation=lambda z: pm.math.maximum(z, 0), noise=0.1, rows=7):
    """The network ``RELU``, written by hand."""
    with pm.Model() as model:
        inputs, s = pm.Data("X", X[:rows]), pm.Data("s", noise) if noise is not None else 0.1
        W1, b1 = pm.Normal("W1", 0, 2**-0.5, shape=(3, 2)), pm.Normal("b1", 0, 2**-0.5, shape=3)
        Z2 = pm.Normal("Z2", b1 + inputs @ W1.T, s)
        A2 = pm.Normal("A2", activation(Z2), s)
        mean = pm.math.dot(A2, pm.Normal("W2", 0, 3**-0.5, shape=3)) + pm.Normal("b2", 0, 3**-0.5)
        pm.Normal("y", mean, s, observed=Y[:rows], shape=mean.shape)
    return model


def draws(model, chains=2, draws=8):
    """Draws as steps make them, with any numbers for the free variables."""
    point = model.initial_point()
    posterior = {
        rv.name: (
            ("chain", "draw", *(f"{rv.name}_{i}" for i in range(rv.ndim))),
            RNG.normal(size=(chains, draws, *x.shape)),
        )
        for rv in model.free_RVs
        if (x := point.get(rv.name)) is not None
    }
    coords = {"chain": np.arange(chains), "draw": np.arange(draws)}
    stats = {FINGERPRINT: (("chain", "draw"), np.full((chains, draws), model_fingerprint(model)))}
    return {"posterior": xr.Dataset(posterior, coords), "sample_stats": xr.Dataset(stats, coords)}


def test_draws_of_pm_sample_carry_the_fingerprint_of_their_model(tmp_path):
    idata = pm_sample(RELU, 4)
    stats = dataset_of(idata, "sample_stats")
    assert stats[FINGERPRINT].shape == (2, 4)
    assert (stats[FINGERPRINT] == model_fingerprint(RELU)).all()
    idata.to_netcdf(tmp_path / "draws.nc")
    halves = [
        {group: dataset_of(idata, group).isel(draw=half) for group in ("posterior", "sample_stats")}
        for half in ([0, 2], [1, 3])
    ]
    joined = {group: xr.concat([half[group] for half in halves], "draw") for group in halves[0]}
    for kept in (idata, az.from_netcdf(tmp_path / "draws.nc"), halves[0], joined):
        with in_python():
            pmg.predict(kept, RELU, X[:2])
        with pytest.raises(ValueError, match="the activation relu, where this one has tanh"):
            pmg.predict(kept, TANH, X[:2])


def regression(noise):
    with pm.Model() as model:
        mean = pm.Data("X", X) @ pm.Normal("w", shape=2)
        pm.Normal("y", mean, noise, observed=Y, shape=mean.shape)
    return model


def test_draws_of_pmg_sample_in_a_store_carry_it(tmp_path):
    pytest.importorskip("zarr")
    model = regression(0.1)
    pmg_sample(model, 4, pmg.PCN(model=model), store=tmp_path / "run", precision="float32")
    idata = pmg.open(tmp_path / "run")
    stats = dataset_of(idata, "sample_stats")
    np.testing.assert_array_equal(stats[FINGERPRINT], np.full((2, 4), model_fingerprint(model)))
    with pytest.raises(ValueError, match="those of a model with another noise"):
        pmg.predict(idata, regression(2.0))


@pytest.mark.parametrize(
    "read",
    [
        lambda idata, model: pmg.predict(idata, model, X),
        lambda idata, model: pmg.log_predictive(idata, model, X, Y),
        pmg.log_predictive,
        pmg.function_space,
        pmg.summary,
        lambda idata, model: pmg.continue_from(idata, pmg.GibbsNN(model=model), model=model),
        pmg.correlated_blocks,
    ],
)
def test_all_that_reads_a_posterior_refuses_another_model(read):
    with in_python(), pytest.raises(ValueError, match="activation relu, where this one has tanh: give the model"):
        read(draws(RELU), TANH)


def test_another_width_is_named_first():
    wider = pmg.mlp(X, Y, 4, noise=0.1, prior=None)
    with pytest.raises(ValueError, match=r"has shape \(4.* in the posterior, but \(3.* in the model"):
        pmg.predict(draws(wider), RELU, X)


def test_thermalisation_refuses_another_model():
    study = pmg.teacher_student((2, 3, 1), n=9, n_test=3, noise=0.1, prior=None, random_seed=1)
    with pytest.raises(ValueError, match=r"results\['informed'\] are those of a model with the activation"):
        pmg.thermalisation(study, {"informed": draws(TANH, 1), "zero": draws(TANH, 1)})


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"noise": 2}, "another noise"),
        ({"noise": [0.1, 0.1, 0.2]}, "another noise"),
        ({"noise": "learned", "likelihood": "normal"}, "another noise; another prior"),
        ({"prior": 3.0}, "another prior"),
        ({"likelihood": "student"}, "another likelihood:"),
        ({"activation": lambda z: pm.math.maximum(z, -0.2)}, "another activation:"),
    ],
)
def test_the_error_says_what_differs(options, part):
    with pytest.raises(ValueError, match=f"those of a model with {part}"):
        pmg.predict(draws(network(**options)), RELU, X)


def test_class_probabilities_refuses_another_likelihood():
    probit = network(y=LABELS, likelihood="probit")
    by_sigmoid = pmg.classical_mlp(X, LABELS, 3, likelihood="bernoulli")
    with pytest.raises(ValueError, match="those of another model"):
        pmg.class_probabilities(draws(probit), by_sigmoid, X)
    with pytest.raises(ValueError, match="another likelihood"):
        pmg.predict(draws(RELU), probit, X)


@pytest.mark.parametrize(
    ("activation", "named"),
    [(pm.math.tanh, "tanh"), (lambda z: pm.math.switch(z < 0, 0.01 * z, z), "leaky_relu"), (lambda z: z, "identity")],
)
def test_activations_are_compared_by_their_values(activation, named):
    assert model_fingerprint(by_hand(activation, None)) == model_fingerprint(network(activation=named))


def test_the_same_model_is_taken_however_it_is_written_and_on_other_data():
    idata = draws(RELU)
    with in_python():
        for model in (by_hand(noise=None), network(5 + X[:4], 3 * Y[:4])):
            pmg.predict(idata, model, X)


def test_data_may_change_and_a_noise_may_be_data():
    model = by_hand(noise=0.1)
    idata = draws(model)
    with model, in_python():
        pm.set_data({"X": X[:4], "s": 3.0})
        found = pmg.predict(idata, X_new=X, random_seed=1)
        pm.set_data({"s": 1e-3})
        assert (found["sd"] > pmg.predict(idata, X_new=X, random_seed=1)["sd"]).all()


def test_learned_variances_may_be_any():
    model = network(noise="learned", prior="relevance")
    assert model_fingerprint(model) == model_fingerprint(network(X, 2 * Y, noise="learned", prior="relevance"))
    assert model_fingerprint(model) != model_fingerprint(network(noise="learned", prior="learned"))


def test_minibatches_and_all_rows_are_one_model():
    batches = pmg.classical_mlp(X, LABELS, 3, batch_size=4)
    assert model_fingerprint(batches) == model_fingerprint(pmg.classical_mlp(X[:5], LABELS[:5], 3))
    assert model_fingerprint(batches) != model_fingerprint(pmg.classical_mlp(X, LABELS, 3, activation="relu"))


def test_priors_that_are_arrays():
    def model(sigma):
        with pm.Model() as model:
            pm.Normal("y", X @ pm.Normal("w", 0, sigma, shape=2), 1, observed=Y)
        return model_fingerprint(model)

    assert model(2.0) == model([2.0, 2.0]) != model([1.0, 3.0]) != model([3.0, 1.0])


def test_draws_of_two_models_are_refused_and_those_without_a_fingerprint_read():
    both, alone = draws(RELU), draws(TANH)
    both["sample_stats"][FINGERPRINT][1] = alone["sample_stats"][FINGERPRINT][1]
    with pytest.raises(ValueError, match="activation tanh, where this one has relu"):
        pmg.predict(both, RELU, X)
    with in_python():
        pmg.predict({"posterior": both["posterior"]}, TANH, X)
        pmg.predict(both | {"sample_stats": both["sample_stats"].drop_vars(FINGERPRINT)}, TANH, X)


def test_other_distributions_than_those_of_networks():
    with pm.Model() as censored:
        b = pm.Normal("b")
        pm.Censored("y", pm.Normal.dist(b, 1), lower=None, upper=1.0, observed=[0.1, 1, 1])
        pm.Potential("p", b)
        pm.MvNormal("m", np.zeros(2), np.eye(2))
        pm.Dirichlet("d", np.ones(3))
    assert model_fingerprint(censored) == model_fingerprint(censored)


def test_draws_of_data_that_were_standardised_otherwise_are_refused():
    models = [network(50 + X[rows], Y[rows], standardise=True) for rows in (slice(None), slice(5))]
    stored = xr.Dataset({"X_mean": ("feature", models[0]["X_mean"].get_value())})
    idata = draws(models[0]) | {"constant_data": stored}
    pmg.predict(idata, models[0], 50 + X)
    with pytest.raises(ValueError, match="standardised its data otherwise: its 'X_mean' was"):
        pmg.predict(draws(models[1]) | {"constant_data": stored}, models[1], 50 + X)
    with pytest.raises(ValueError, match="those of a"):
        pmg.predict(idata, network(), X)

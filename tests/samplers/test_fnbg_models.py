"""FNBG in use: models it refuses, minibatches, blocks, tuning, drivers, predictions and figures."""

import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import clone_replace
from scipy.special import softmax

import pymc_gibbsnn as pmg
from pymc_gibbsnn.networks.minibatch import read_minibatches
from pymc_gibbsnn.networks.network import NetworkError
from pymc_gibbsnn.plots import plot_acceptance, plot_class_probabilities
from pymc_gibbsnn.prediction import new_rows
from tests.helpers import PYTHON, QUIET, check_mean, check_same_distribution, compile_draw, slow

X = np.random.default_rng(0).normal(size=(30, 3))
LABELS = np.arange(30) % 3


@pytest.fixture
def model():
    return pmg.classical_mlp(X, LABELS, [4])


def sample(model, count=20, step=None, **kwargs):
    with model:
        step = step or pmg.FNBG(compile_kwargs=PYTHON)
        return pm.sample(count, step=step, **({"tune": 0, "chains": 2, "cores": 1, "random_seed": 7} | QUIET | kwargs))


# What is refused


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"blocks": [[0, 1], [1, 2]]}, r"overlap in \[1\]"),
        ({"blocks": [[0, 1], [3]]}, r"miss \[ *2 +4"),
        ({"blocks": [[0, 99]]}, "from 0 to 30"),
        ({"blocks": [[0.5]]}, "lists of numbers"),
        ({"blocks": "nodes"}, "'nodes'"),
        ({"blocks": 0}, "positive integer"),
        ({"scale": -0.1}, "standard deviation"),
        ({"scale": [0.1, 0.1, 0.1]}, "2 .one a layer. or 7"),
        ({"scale": [0.1, 0.1], "blocks": "all"}, "several layers"),
        ({"target_accept": 1.5}, "between 0 and 1"),
        ({"stratify": True}, "minibatch of class labels"),
    ],
)
def test_bad_arguments(model, kwargs, message):
    with pytest.raises(ValueError, match=message):
        pmg.FNBG(model=model, **kwargs)


def by_hand(inputs, labels):
    with pm.Model() as model:
        w = pm.Normal("w", 0, 1, shape=(3, 3))
        labels = pm.Data("labels", labels) if isinstance(labels, np.ndarray) else labels
        pm.Categorical("y", logit_p=inputs @ w.T, observed=labels)
    return model


def test_bad_data():
    X_nan = X.copy()
    X_nan[3, 1] = np.nan
    with pytest.raises(NetworkError, match="NaN"):
        pmg.FNBG(model=by_hand(X_nan, LABELS))
    with pytest.raises(NetworkError, match="from 0 to 2; found"):
        pmg.FNBG(model=by_hand(X, LABELS + 1))
    with pytest.raises(NetworkError, match="dtype float64: give integers"):
        pmg.FNBG(model=by_hand(X, LABELS.astype(float)))
    with pytest.raises(ValueError, match="40 rows is larger than the data, which have 30"):
        pmg.FNBG(model=by_hand(*pm.Minibatch(X, LABELS.astype("int32"), batch_size=40)))
    with pytest.raises(ValueError, match="in one call"):
        pmg.FNBG(model=by_hand(pm.Minibatch(X, batch_size=5), pm.Minibatch(LABELS.astype("int32"), batch_size=5)))
    with pm.Model() as model:
        pm.Poisson("k", 3)
    with pytest.raises(ValueError, match="discrete"):
        pmg.FNBG(model=model)
    with pytest.raises(ValueError, match=r"must be free variables.*'other'"):
        pmg.FNBG([pt.scalar("other")], model=model)


# Blocks


@pytest.mark.parametrize("blocks", [slow("layer"), 2, "correlated", slow("all")])
def test_every_block_moves(model, blocks):
    kwargs = {}
    if blocks == "correlated":
        pilot = sample(model, 100)
        blocks = pmg.correlated_blocks(pilot, model, largest=4)
        assert max(map(len, blocks)) <= 4
    idata = sample(model, 5, step=pmg.FNBG(model=model, blocks=blocks, scale=1e-3, compile_kwargs=PYTHON), **kwargs)
    for name in ("W1", "b1", "W2", "b2"):
        assert (np.diff(idata["posterior"][name].values, axis=1) != 0).all()


# Minibatches


def test_one_batch_a_sweep_rows_paired_and_drawn_evenly():
    rows = pm.Minibatch(np.arange(8.0), np.arange(8), batch_size=3)
    [x, y], batches = read_minibatches(rows)

    def build(rng):
        rng, index = batches.draw(rng, {})
        return rng, *clone_replace([x, y], {batches.index: index}, rebuild_strict=False)

    draw, counts = compile_draw(build), np.zeros(8)
    for _ in range(2000):
        one, other = draw()
        np.testing.assert_array_equal(one, other)
        counts += np.bincount(other, minlength=8)
    assert (np.abs(counts - 750) < 5 * np.sqrt(750)).all()


def test_stratified_batches():
    labels = np.repeat([2, 0, 1], [20, 7, 3])
    _, batches = read_minibatches([pm.Minibatch(labels, batch_size=10)])
    batches = replace(batches, labels=pt.constant(labels))
    draw, counts = compile_draw(lambda rng: batches.draw(rng, batches.start())), np.zeros(30)
    for _ in range(900):
        rows = draw()
        counts += np.bincount(rows, minlength=30)
        of_class = np.bincount(labels[rows], minlength=3)
        assert (np.abs(of_class - np.array([7, 3, 20]) / 3) < 2).all()
    assert (np.abs(counts - 300) < 5 * np.sqrt(300)).all()


def test_batches_change_from_sweep_to_sweep_and_carry_total_size():
    """With prior alone in the blocks' way, lp tells which rows a sweep saw."""
    model = pmg.classical_mlp(X, LABELS, [], batch_size=6, total_size=30)
    step = pmg.FNBG(model=model, scale=1e-9, compile_kwargs=PYTHON)
    point, seen = model.initial_point(), []
    point["W1"] = np.random.default_rng(1).normal(size=(3, 3))
    for _ in range(300):
        point, [stats] = step.step(point)
        seen.append(stats["lp"])
    assert len(np.unique(np.round(seen, 6))) > 250
    exact = pmg.classical_mlp(X, LABELS, []).compile_logp(mode="AS_WRITTEN")(point)
    check_mean(np.array(seen), exact, "lp", least_ess=100)


# Tuning, drivers


@pytest.mark.slow
def test_scales_are_tuned_and_then_stay(model):
    idata = sample(
        model, 300, step=pmg.FNBG(model=model, compile_kwargs=PYTHON), tune=1500, chains=1, discard_tuned_samples=True
    )
    stats = idata["sample_stats"]
    for name in ("acceptance_W1", "acceptance_W2", "acceptance_W1_2"):
        assert abs(stats[name].values.mean() - 0.35) < 0.1
    for name in ("scale_W1", "scale_W2"):
        assert np.ptp(stats[name].values) == 0
    assert {f"acceptance_W1_{k}" for k in range(4)} <= set(stats.data_vars)


def test_given_scales_are_kept(model):
    step = pmg.FNBG(model=model, scale=[0.5, 0.02], compile_kwargs=PYTHON)
    idata = sample(model, 5, step=step, tune=50)
    np.testing.assert_allclose(idata["sample_stats"]["scale_W1"].values, 0.5)
    np.testing.assert_allclose(idata["sample_stats"]["scale_W2"].values, 0.02)


def test_chains_differ_and_cores_do_not_matter(model):
    one, two = (sample(model, cores=cores)["posterior"]["W1"].values for cores in (1, 2))
    assert not np.allclose(one[0], one[1])
    np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_beside_another_step_on_a_transformed_scale():
    with pm.Model():
        s = pm.HalfNormal("s")
        w = pm.Normal("w", 0, 1, shape=3)
        pm.Normal("y", X @ w, s, observed=X[:, 0])
        steps = [pmg.FNBG([w], compile_kwargs=PYTHON), pm.Slice([s])]
        idata = pm.sample(50, tune=50, chains=1, step=steps, random_seed=1, **QUIET)
        everything = pm.sample(20, tune=20, chains=1, step=pmg.FNBG(compile_kwargs=PYTHON), random_seed=1, **QUIET)
    assert idata["posterior"]["w"].values.std() > 0
    assert (everything["posterior"]["s"].values > 0).all()
    assert "acceptance_s_log__" in everything["sample_stats"]


@pytest.mark.parametrize("batch", [10, slow(None)])
def test_the_jax_driver(batch):
    model = pmg.classical_mlp(X, LABELS, [4], batch_size=batch)
    with model:
        idata = pmg.sample(
            30, tune=30, step=pmg.FNBG(stratify=batch is not None), chains=3, random_seed=1, progressbar=False
        )
    w = idata["posterior"]["W1"].values
    assert np.isfinite(w).all()
    assert not np.allclose(w[0], w[1])
    assert 0 < idata["sample_stats"]["acceptance_rate"].values.mean() < 1


ACROSS_NODES = [[0, 12, 16], list(set(range(31)) - {0, 12, 16})]


@pytest.mark.parametrize(
    ("blocks", "batch"),
    [
        slow(ACROSS_NODES, None),
        *(slow("all", batch) for batch in (None, 10)),
        slow(ACROSS_NODES, 10),
        *(slow(blocks, batch) for blocks in ("node", 2, "layer") for batch in (None, 10)),
    ],
)
def test_blocks_in_the_jax_driver(blocks, batch):
    """Every form, those that cross nodes by the general sweep; ``lp`` is that of the draws."""
    model = pmg.classical_mlp(X, LABELS, [4], batch_size=batch, total_size=batch and 30)
    with model, warnings.catch_warnings():
        warnings.filterwarnings("error", "Skipping")
        idata = pmg.sample(
            20, tune=0, step=pmg.FNBG(blocks=blocks, scale=0.05), chains=2, random_seed=1, progressbar=False
        )
    posterior, stats = idata["posterior"], idata["sample_stats"]
    assert 0 < stats["acceptance_rate"].values.mean() < 1
    point = {v.name: posterior[v.name].values[1, -1] for v in model.free_RVs}
    if batch is None:
        expected = model.compile_logp(mode="AS_WRITTEN")(point)
        np.testing.assert_allclose(stats["lp"].values[1, -1], expected, rtol=1e-9)


@pytest.mark.slow
def test_numba_samples_a_minibatch_and_a_general_model():
    for model, blocks in ((pmg.classical_mlp(X, LABELS, [4], batch_size=10), 2), (by_hand(X, LABELS), "all")):
        idata = sample(model, 100, step=pmg.FNBG(model=model, blocks=blocks))
        assert 0 < idata["sample_stats"]["acceptance_rate"].values.mean() < 1


@pytest.mark.slow
def test_against_nuts():
    """Predictive probabilities on the same model."""
    X_small, y = X[:12], LABELS[:12]
    model = pmg.classical_mlp(X_small, y, [2], activation="tanh")
    series = {}
    for name in ("nuts", "fnbg"):
        with model:
            kwargs = {"draws": 2000, "tune": 1000} if name == "nuts" else {"draws": 40000, "tune": 2000}
            if name == "fnbg":
                kwargs["step"] = pmg.FNBG()
            series[name] = pm.sample(chains=2, cores=1, random_seed=3, **QUIET, **kwargs)
    found = {}
    for name, idata in series.items():
        posterior = idata["posterior"]
        w1, b1, w2, b2 = (posterior[v].values for v in ("W1", "b1", "W2", "b2"))
        f = np.tanh(X[:4] @ np.swapaxes(w1, -1, -2) + b1[..., None, :]) @ np.swapaxes(w2, -1, -2) + b2[..., None, :]
        probabilities = softmax(f, axis=-1)
        found[name] = {f"point {i}": probabilities[:, :, i, 0] for i in range(4)}
    check_same_distribution(found["fnbg"], found["nuts"], powers=(1,))


# Predictions and figures


def test_class_probabilities(model):
    idata = sample(model, 7)
    posterior = idata["posterior"]
    X_new = X[:5] + 0.1
    expected = np.zeros((2, 5, 3))
    for chain, draw in np.ndindex(2, 7):
        w1, b1, w2, b2 = (posterior[name].values[chain, draw] for name in ("W1", "b1", "W2", "b2"))
        expected[chain] += softmax(1 / (1 + np.exp(-(X_new @ w1.T + b1))) @ w2.T + b2, axis=1) / 7
    found = pmg.class_probabilities(idata, model, X_new)
    np.testing.assert_allclose(found.values, expected, rtol=1e-10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(new_rows, "AT_ONCE", 50)  # in several batches
        np.testing.assert_allclose(pmg.class_probabilities(idata, model, X_new).values, expected, rtol=1e-10)
    with pytest.raises(ValueError, match="X_new"):
        pmg.class_probabilities(idata, model, X[:, :2])
    figures = plot_class_probabilities(found.mean("chain"), np.zeros((5, 4, 4)), np.zeros(5, int))
    assert figures.shape == (2, 5)
    axes = plot_acceptance(idata)
    assert [len(ax.get_xticks()) for ax in axes] == [2, 7]


def test_two_classes_and_minibatches():
    model = pmg.classical_mlp(X, LABELS % 2, [2], likelihood="bernoulli", batch_size=7)
    idata = sample(model, 3)
    p = pmg.class_probabilities(idata, model)
    assert p.shape == (2, 30, 2)
    np.testing.assert_allclose(p.sum("class"), 1)
    w1, b1, w2, b2 = (idata["posterior"][name].values[0] for name in ("W1", "b1", "W2", "b2"))
    a = 1 / (1 + np.exp(-(X @ np.swapaxes(w1, 1, 2) + b1[:, None])))
    f = np.einsum("tnh,th->tn", a, w2) + b2[:, None]
    np.testing.assert_allclose(p[0, :, 1], (1 / (1 + np.exp(-f))).mean(0), rtol=1e-10)

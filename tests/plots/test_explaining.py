"""Figures that explain a fit, against sums over rows and draws that are written out here."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from scipy.special import expit, ndtr, ndtri, softmax
from scipy.stats import kstest, norm

import pymc_gibbsnn as pmg
from pymc_gibbsnn._compat import dataset_of
from pymc_gibbsnn._frames import features_of
from pymc_gibbsnn.diagnostics.relevance import permutation_importance, weight_deviations
from pymc_gibbsnn.diagnostics.residuals import local_mean, quantile_residuals, quantile_residuals_of_labels
from pymc_gibbsnn.prediction.expected import expected_values
from pymc_gibbsnn.prediction.table import input_table
from tests.helpers import in_python, pm_sample

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.uniform(-1, 1, (40, 3)), columns=["age", "bmi", "sex"])
X["sex"] = np.sign(X["sex"])
REAL = rng.normal(size=40)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(autouse=True, scope="module")
def _in_python():
    with in_python():
        yield


def a_posterior(model, draws=20):
    """Draws of all that a network shares among rows, from its prior, in the place of a posterior's."""
    with model:
        prior = pm.sample_prior_predictive(draws, var_names=pmg.without_latents(), random_seed=1)
    return {"posterior": dataset_of(prior, "prior")}


def draws_of(idata, *names):
    return [idata["posterior"][name].values.reshape(-1, *idata["posterior"][name].shape[2:]) for name in names]


def outputs(idata, x):
    """The output of a network with one hidden layer of ReLU, (draw, row) or (draw, row, output), draw by draw.

    It is a mean over the noise of hidden units, where that is learned.
    """
    weights = draws_of(idata, "W1", "b1", "W2", "b2")
    is_learned = "variance_Z2" in idata["posterior"]
    sd = np.sqrt(draws_of(idata, "variance_Z2")[0]) if is_learned else np.full(len(weights[0]), 1e-12)

    def relu(m, s):
        return m * ndtr(m / s) + s * norm.pdf(m / s)

    return np.array(
        [relu(x @ W1.T + b1, s) @ np.transpose(W2) + b2 for W1, b1, W2, b2, s in zip(*weights, sd, strict=True)]
    )


def averaged(function, column, values):
    """The mean over rows, with a column set to each value in turn, (draw, value, ...)."""
    changed = []
    for value in values:
        x = X.values.copy()
        x[:, column] = value
        changed.append(function(x).mean(axis=1))
    return np.stack(changed, axis=1)


def line_of(ax, k=0):
    return ax.lines[k].get_xdata(), ax.lines[k].get_ydata()


def band_of(ax):
    """The lower and upper edge of the band, (2, point)."""
    [band] = [one for one in ax.collections if isinstance(one, PolyCollection)]
    vertices = band.get_paths()[0].vertices
    xs = np.unique(vertices[:, 0])
    return np.array([[f(vertices[vertices[:, 0] == x, 1]) for x in xs] for f in (np.min, np.max)])


# Partial dependence


@pytest.mark.parametrize("likelihood", ["student", "normal"])
def test_partial_dependence_averages_the_function_over_rows(likelihood):
    model = pmg.mlp(X, REAL, hidden=4, likelihood=likelihood)
    idata = a_posterior(model)
    [age, sex] = pmg.plot_partial_dependence(idata, model, ["age", 2], grid=7, probability=0.8)
    assert [ax.get_xlabel() for ax in (age, sex)] == ["age", "sex"]
    assert age.get_ylabel() == "mean of y"
    assert age.get_ylim() == sex.get_ylim()
    at, mean = line_of(age)
    np.testing.assert_allclose(at, np.linspace(*np.quantile(X["age"], [0.05, 0.95]), 7))
    truth = averaged(lambda x: outputs(idata, x), 0, at)
    np.testing.assert_allclose(mean, truth.mean(0))
    np.testing.assert_allclose(band_of(age), np.quantile(truth, [0.1, 0.9], axis=0))
    np.testing.assert_array_equal(line_of(sex)[0], [-1, 1])
    np.testing.assert_allclose(line_of(sex)[1], averaged(lambda x: outputs(idata, x), 2, [-1, 1]).mean(0))
    [marks] = [one for one in age.collections if isinstance(one, LineCollection)]
    places = [segment[0, 0] for segment in marks.get_segments()]
    np.testing.assert_allclose(places, np.quantile(X["age"], np.arange(1, 10) / 10))


def test_curves_of_rows_are_means_over_draws():
    model = pmg.mlp(X, REAL, hidden=4)
    idata = a_posterior(model)
    [both] = pmg.plot_partial_dependence(idata, model, 1, kind="both", grid=5)
    assert len(both.lines) == len(X) + 1
    at, _ = line_of(both)
    for row in (0, 39):
        x = np.repeat(X.values[[row]], 5, axis=0)
        x[:, 1] = at
        np.testing.assert_allclose(line_of(both, row)[1], outputs(idata, x).mean(0))
    [individual] = pmg.plot_partial_dependence(idata, model, 1, kind="individual", grid=5)
    assert len(individual.lines) == len(X)


def test_partial_dependence_on_a_pair():
    model = pmg.mlp(X, REAL, hidden=4)
    idata = a_posterior(model)
    [ax] = pmg.plot_partial_dependence(idata, model, ("age", "bmi"), grid=12)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "bmi")
    assert ax.get_figure().axes[-1].get_ylabel() == "mean of y"
    grids = [np.linspace(*np.quantile(X[name], [0.05, 0.95]), 6) for name in ("age", "bmi")]
    f = []
    for age in grids[0]:
        x = X.values.copy()
        x[:, 0] = age
        f.append([outputs(idata, np.c_[x[:, 0], np.full(40, bmi), x[:, 2]]).mean() for bmi in grids[1]])
    _, other = plt.subplots()
    expected = other.contourf(*grids, np.transpose(f), levels=10)
    drawn = next(one for one in ax.collections if hasattr(one, "levels"))
    np.testing.assert_allclose(drawn.levels, expected.levels)
    for one, two in zip(drawn.get_paths(), expected.get_paths(), strict=True):
        np.testing.assert_allclose(one.vertices, two.vertices)


def test_mean_of_counts_is_that_over_the_noise_of_the_last_latent():
    exposure = rng.uniform(1, 3, 40)
    model = pmg.mlp(X, rng.poisson(2, 40), hidden=4, likelihood="poisson", noise=[1e-8, 1e-8, 0.7], exposure=exposure)
    idata = a_posterior(model)
    [ax] = pmg.plot_partial_dependence(idata, model, "bmi", grid=5)
    at, mean = line_of(ax)
    truth = averaged(lambda x: exposure * np.exp(outputs(idata, x) + 0.7**2 / 2), 1, at)
    np.testing.assert_allclose(mean, truth.mean(0), rtol=1e-6)


def test_several_outputs_have_lines_of_their_own():
    y = pd.DataFrame(rng.normal(size=(40, 2)), columns=["u", "v"])
    model = pmg.mlp(X, y, hidden=4)
    idata = a_posterior(model)
    [ax] = pmg.plot_partial_dependence(idata, model, "bmi", grid=5)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["u", "v"]
    truth = averaged(lambda x: outputs(idata, x), 1, line_of(ax)[0]).mean(0)
    np.testing.assert_allclose([line_of(ax, k)[1] for k in (0, 1)], truth.T)
    [one] = pmg.plot_partial_dependence(idata, model, "bmi", grid=5, output="v", kind="both")
    assert one.get_ylabel() == "mean of v"
    np.testing.assert_allclose(one.lines[-1].get_ydata(), truth[:, 1])


def test_probability_of_two_classes_is_that_of_the_second():
    model = pmg.mlp(X, np.where(REAL > 0, "yes", "no"), hidden=4, likelihood="probit", noise=[1e-5, 1e-5, 1.0])
    idata = a_posterior(model)
    [ax] = pmg.plot_partial_dependence(idata, model, "bmi", grid=5)
    assert ax.get_ylabel() == "probability of yes"
    truth = averaged(lambda x: ndtr(outputs(idata, x)), 1, line_of(ax)[0])
    np.testing.assert_allclose(line_of(ax)[1], truth.mean(0), atol=1e-4)
    np.testing.assert_allclose(band_of(ax), np.quantile(truth, [0.05, 0.95], axis=0), atol=1e-4)


def test_probabilities_of_a_classical_network_are_exact():
    model = pmg.classical_mlp(X, (REAL > 0).astype(int), hidden=4, activation="relu")
    with model:
        idata = {"posterior": dataset_of(pm.sample_prior_predictive(10, random_seed=1), "prior")}
    f = expected_values(model, idata["posterior"], X.values)
    np.testing.assert_allclose(f, softmax(outputs(idata, X.values), axis=-1))


def test_probability_is_that_over_the_noise_of_the_logit():
    model = pmg.mlp(X, (REAL > 0).astype(int), hidden=4, likelihood="bernoulli", noise=[1e-5, 1e-5, 1.0])
    idata = a_posterior(model, 5)
    found = expected_values(model, idata["posterior"], X.values)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    truth = expit(outputs(idata, X.values)[..., None] + nodes) @ weights / weights.sum()
    np.testing.assert_allclose(found, np.stack([1 - truth, truth], -1), atol=1e-4)


def test_draws_of_latents_average_out():
    """Probabilities under noisy logits are those of the softmax, averaged over their noise."""
    model = pmg.mlp(X, np.arange(40) % 3, hidden=4, likelihood="categorical", noise=[1e-4, 1e-4, 1.0])
    idata = a_posterior(model, 5)
    found = expected_values(model, idata["posterior"], X.values[:2], latent_draws=20_000, random_seed=1)
    noise = rng.normal(size=(20_000, 1, 1, 3))
    drawn = softmax(outputs(idata, X.values[:2]) + noise, axis=-1)
    np.testing.assert_allclose(found, drawn.mean(0), atol=5 * drawn.std(0).max() * np.sqrt(2 / 20_000))


def test_rows_that_are_given_are_averaged():
    model = pmg.mlp(X, REAL, hidden=4)
    idata = a_posterior(model)
    [ax] = pmg.plot_partial_dependence(idata, model, "bmi", X.iloc[:3], grid=5)
    x = [np.c_[X.values[:3, 0], np.full(3, v), X.values[:3, 2]] for v in line_of(ax)[0]]
    np.testing.assert_allclose(line_of(ax)[1], [outputs(idata, one).mean() for one in x])
    figure, ax = plt.subplots()
    assert pmg.plot_partial_dependence(idata, model, "bmi", ax=ax)[0] is ax
    assert plt.get_fignums()[-1] == figure.number


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"features": "height"}, "features must be names of columns .*; found 'height', and the columns are .*'age'"),
        ({"features": 3}, "numbers from 0 to 2; found 3"),
        ({"features": (0, 0)}, "must hold two columns; found \\(0, 0\\)"),
        ({"features": []}, "found none"),
        ({"features": 0, "kind": "all"}, "kind must be 'average', 'individual' or 'both'; found 'all'"),
        ({"features": 0, "output": "z"}, "output must be one of \\['u', 'v'\\].*; found 'z'"),
        ({"features": (0, 1)}, "output must say which one to show .*; found None"),
        ({"features": 0, "probability": 1}, "probability must be a probability between 0 and 1; found 1"),
        ({"features": [0, 1], "ax": "one"}, "ax must hold 2 axes, one for each of the features; found 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(how, error):
    model = pmg.mlp(X, pd.DataFrame(rng.normal(size=(40, 2)), columns=["u", "v"]), hidden=2)
    if "ax" in how:
        how = how | {"ax": plt.subplots()[1]}
    with pytest.raises(ValueError, match=error):
        pmg.plot_partial_dependence(a_posterior(model, 2), model, **how)


def test_inputs_that_are_no_matrix_are_refused():
    with pm.Model() as model:
        x = pm.Data("x", np.arange(5.0))
        pm.Normal("y", x * pm.Normal("w"), 1, observed=np.arange(5.0))
    with pytest.raises(pmg.NetworkError, match=r"inputs of 'y' must be one matrix.*'x': \(5,\)"):
        pmg.plot_partial_dependence(a_posterior(model), model, 0)


# Categories

CITIES = pd.Categorical(rng.permutation(np.repeat(["Rome", "Lima", "Oslo"], [20, 12, 8])), ["Rome", "Lima", "Oslo"])
FLATS = pd.DataFrame({"area": X["age"], "city": CITIES, "new": X["sex"] > 0, "floor": rng.choice(["1", "2"], 40)})
COLUMNS = ["area", "city=Rome", "city=Lima", "city=Oslo", "new", "floor=1", "floor=2"]


def moved(matrix, *columns):
    """The matrix with 1 in these columns, and 0 in the others of the same category."""
    x = matrix.copy()
    for j in columns:
        x[:, [1, 2, 3] if j < 4 else [5, 6]] = 0
        x[:, j] = 1
    return x


@pytest.mark.parametrize("feature", ["city", "city=Lima", 3])
def test_all_indicators_of_a_category_move_together(feature):
    model = pmg.mlp(FLATS, REAL, hidden=4)
    idata, matrix = a_posterior(model), model["X"].get_value()
    assert list(model.coords["feature"]) == COLUMNS
    [ax, other] = pmg.plot_partial_dependence(idata, model, [feature, "area"], probability=0.8)
    assert ax.get_xlabel() == "city"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["Rome", "Lima", "Oslo"]
    truth = np.stack([outputs(idata, moved(matrix, j)).mean(axis=1) for j in (1, 2, 3)], axis=1)
    at, mean = line_of(ax)
    np.testing.assert_array_equal(at, [0, 1, 2])
    np.testing.assert_allclose(mean, truth.mean(axis=0))
    ends = [segment[:, 1] for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(ends, np.quantile(truth, [0.1, 0.9], axis=0).T)
    assert ax.get_ylim() == other.get_ylim()


def test_curves_and_outputs_of_a_category():
    y = pd.DataFrame(rng.normal(size=(40, 2)), columns=["u", "v"])
    model = pmg.mlp(FLATS, y, hidden=4)
    idata, matrix = a_posterior(model), model["X"].get_value()
    [ax] = pmg.plot_partial_dependence(idata, model, "city", FLATS.iloc[:9])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["u", "v"]
    truth = np.stack([outputs(idata, moved(matrix[:9], j)).mean(axis=1) for j in (1, 2, 3)], axis=1)
    np.testing.assert_allclose([line_of(ax, k)[1] for k in (0, 1)], truth.mean(axis=0).T)
    [ax] = pmg.plot_partial_dependence(idata, model, "city", kind="both", output="v")
    curve = [outputs(idata, moved(matrix, j))[:, 7, 1].mean() for j in (1, 2, 3)]
    np.testing.assert_allclose(line_of(ax, 7)[1], curve)


def test_pairs_with_a_category_are_cells():
    model = pmg.mlp(FLATS, REAL, hidden=4)
    idata, matrix = a_posterior(model), model["X"].get_value()
    both, mixed = pmg.plot_partial_dependence(idata, model, [("city", "floor"), ("area", "city")], grid=8)
    assert [text.get_text() for text in both.get_yticklabels()] == ["1", "2"]
    truth = [[outputs(idata, moved(matrix, i, j)).mean() for i in (1, 2, 3)] for j in (5, 6)]
    np.testing.assert_allclose(both.collections[0].get_array().reshape(2, 3), truth)
    assert [text.get_text() for text in mixed.get_yticklabels()] == ["Rome", "Lima", "Oslo"]
    assert mixed.collections[0].get_array().size == 3 * 4
    with pytest.raises(ValueError, match="must hold two columns"):
        pmg.plot_partial_dependence(idata, model, ("city=Rome", "city=Lima"))


def test_columns_that_only_look_like_indicators_are_numbers():
    frame = pd.DataFrame({"size=S": REAL, "size=M": REAL**2, "half=1": [0.0, 1.0] * 20})
    assert [one.categories for one in features_of(list(frame), frame.values)] == [None] * 3


def test_a_category_is_permuted_as_one():
    model = pmg.mlp(FLATS, REAL, hidden=4)
    idata, matrix = a_posterior(model, 4), model["X"].get_value()
    ax = pmg.plot_relevance(idata, model, method="permutation", repeats=2000, random_seed=1)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert sorted(labels) == ["area", "city", "floor", "new"]
    pairs = np.repeat(matrix, 40, axis=0)
    pairs[:, 1:4] = np.tile(matrix[:, 1:4], (40, 1))
    before = ((REAL - outputs(idata, matrix)) ** 2).mean(1)
    increase = ((np.repeat(REAL, 40) - outputs(idata, pairs)) ** 2).mean(1) - before
    found = ax.lines[0].get_xdata()[labels.index("city")]
    np.testing.assert_allclose(found, np.median(increase), rtol=0.05, atol=0.01 * before.max())


# Relevance


def test_relevance_is_the_deviation_of_weights_by_input():
    model = pmg.mlp(X, REAL, hidden=4, prior="relevance")
    idata = a_posterior(model)
    ax = pmg.plot_relevance(idata, model, probability=0.5)
    deviations = 1 / np.sqrt(draws_of(idata, "precision_W1")[0])
    order = np.argsort(np.median(deviations, axis=0))
    assert [label.get_text() for label in ax.get_yticklabels()] == list(X.columns[order])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), np.median(deviations, axis=0)[order])
    ends = [segment[:, 0] for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(ends, np.quantile(deviations, [0.25, 0.75], axis=0).T[order])


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_precisions_belong_to_inputs_however_weights_are_written(layout):
    with pm.Model() as model:
        x = pm.Data("X", X.values)
        tau = pm.Gamma("tau", 2, 2, shape=3)
        shape = (3, 3)  # as many units as inputs, so that shapes do not tell
        W = pm.Normal("W1", 0, 2 / pm.math.sqrt(tau if layout == "rows" else tau[:, None]), shape=shape)
        Z = pm.Normal("Z2", x @ (W.T if layout == "rows" else W), 0.1)
        A = pm.Normal("A2", pm.math.maximum(Z, 0), 0.1)
        pm.Normal("y", A @ pm.Normal("W2", 0, 1, shape=3), 0.1, observed=REAL)
    posterior = a_posterior(model)["posterior"]
    np.testing.assert_allclose(weight_deviations(model, posterior), 2 / np.sqrt(posterior["tau"].values[0]))


def test_without_precisions_columns_are_permuted():
    model = pmg.mlp(X, REAL, hidden=4, prior=1.0)
    idata = a_posterior(model)
    with pytest.raises(pmg.NetworkError, match="'Z2' have no learned precision for each input"):
        pmg.plot_relevance(idata, model, method="precision")
    ax = pmg.plot_relevance(idata, model, random_seed=1)
    assert ax.get_xlabel() == "increase of the mean squared error"


def test_permutation_importance_is_the_increase_of_the_squared_error():
    """Averaged over permutations it is that over all pairs of rows."""
    model = pmg.mlp(X, REAL, hidden=4)
    idata = a_posterior(model, 4)
    table = input_table(model)
    features = features_of(table.columns, table.X)
    found = permutation_importance(model, idata["posterior"], table, REAL, features, repeats=2000, random_seed=1)
    x, before = X.values, ((REAL - outputs(idata, X.values)) ** 2).mean(1)
    for j in range(3):
        changed = np.repeat(x, 40, axis=0)
        changed[:, j] = np.tile(x[:, j], 40)
        after = ((np.repeat(REAL, 40) - outputs(idata, changed)) ** 2).mean(1)
        np.testing.assert_allclose(found[:, j], after - before, rtol=0.05, atol=0.01 * before.max())


def test_permutation_importance_of_classes_is_that_of_the_brier_score():
    y = (X["bmi"] > 0).astype(int).values
    model = pmg.classical_mlp(X, y, hidden=4, activation="relu")
    with model:
        idata = {"posterior": dataset_of(pm.sample_prior_predictive(10, random_seed=1), "prior")}
    ax = pmg.plot_relevance(idata, model, method="permutation", repeats=1, random_seed=2)
    assert ax.get_xlabel() == "increase of the Brier score"
    generator = np.random.default_rng(2)
    generator.integers(2**31)
    p = softmax(outputs(idata, X.values), axis=-1)
    increases = []
    for j in range(3):
        x = X.values.copy()
        x[:, j] = generator.permutation(x[:, j])
        other, truth = softmax(outputs(idata, x), axis=-1), np.eye(2)[y]
        increases.append(((other - truth) ** 2 - (p - truth) ** 2).sum(-1).mean(1))
    medians = np.median(increases, axis=1)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), np.sort(medians))


def test_rows_and_targets_come_together():
    model = pmg.mlp(X, REAL, hidden=2)
    idata = a_posterior(model, 2)
    for plot in (pmg.plot_relevance, pmg.plot_residuals, pmg.plot_ppc):
        with pytest.raises(ValueError, match="X_new needs y_new"):
            plot(idata, model, X)
        with pytest.raises(ValueError, match="y_new needs X_new"):
            plot(idata, model, None, REAL)
        with pytest.raises(ValueError, match=r"y_new must have 40 rows, as the inputs, and 1 axes; found \(3,\)"):
            plot(idata, model, X, REAL[:3])
    with pytest.raises(ValueError, match="X_new must be None for method='precision'"):
        pmg.plot_relevance(idata, model, X, REAL, method="precision")


# Residuals


def test_quantile_residuals_are_normal_if_data_and_draws_are_alike():
    for draw in (lambda *s: rng.normal(size=s), lambda *s: rng.poisson(0.7, s)):
        residuals = quantile_residuals(draw(9, 4000), draw(4000), rng)  # however few draws there are
        assert kstest(residuals, "norm").pvalue > 0.001


@pytest.mark.parametrize("classes", [2, 4])
def test_quantile_residuals_of_labels_are_normal_if_probabilities_are_right(classes):
    p = rng.dirichlet(np.ones(classes), 4000)
    labels = (p.cumsum(1) < rng.uniform(size=(4000, 1))).sum(1)
    residuals = quantile_residuals_of_labels(p, labels, rng)
    assert kstest(residuals, "norm").pvalue > 0.001
    improbable = quantile_residuals_of_labels(p, p.argmin(1), rng)
    if classes > 2:
        assert improbable.max() < ndtri(0.25)  # the least of four probabilities


def test_local_mean_is_a_weighted_regression():
    x, y = rng.normal(size=30), rng.normal(size=30)
    for at in (-1.0, 0.3, 5.0):
        distance = np.abs(x - at)
        w = np.clip(1 - (distance / np.sort(distance)[15]) ** 3, 0, None) ** 1.5  # polyfit squares weights
        np.testing.assert_allclose(local_mean(x, y, np.array([at])), np.polyval(np.polyfit(x, y, 1, w=w), at))
        np.testing.assert_allclose(local_mean(x, y, np.array([at]), degree=0), np.average(y, weights=w**2))
    np.testing.assert_allclose(local_mean(np.ones(9), np.arange(9.0), np.array([1.0])), 4)


@pytest.mark.parametrize("kind", ["quantile", "standardised"])
def test_residuals_stand_against_the_predicted_mean(kind):
    model = pmg.mlp(X, REAL, hidden=4, noise=0.5)
    idata = a_posterior(model, 200)
    [ax] = pmg.plot_residuals(idata, model, kind=kind, random_seed=1)
    found = pmg.predict(idata, model, samples=True, random_seed=1)
    x, r = np.concatenate([line_of(ax, 0), line_of(ax, 1)], axis=1)
    order, by_mean = np.argsort(x), np.argsort(found["mean"].values)
    np.testing.assert_allclose(x[order], found["mean"].values[by_mean])
    truth = (REAL - found["mean"].values) / found["sd"].values
    if kind == "quantile":
        ranks = (found["samples"].values[0] < REAL).sum(0)
        assert (ndtri(ranks / 201)[by_mean] <= r[order]).all()
        assert (r[order] <= ndtri((ranks + 1) / 201)[by_mean]).all()
    else:
        np.testing.assert_allclose(r[order], truth[by_mean])
    assert (np.abs(line_of(ax, 1)[1]) > 1.64).all()
    assert ax.get_ylabel() == f"{kind} residual"
    assert ax.get_xlabel() == "predicted mean of y"


def test_residuals_of_noise_that_is_not_constant_open_like_a_fan():
    x = np.linspace(-1, 1, 400)[:, None]
    y = 2 * x[:, 0] + (0.1 + x[:, 0] + 1) * rng.normal(size=400)
    with pm.Model() as model:
        mean = pm.Data("X", x) @ pm.Normal("w", 0, 1, shape=1)
        pm.Normal("y", mean, 1.0, observed=y)
    idata = {"posterior": dataset_of(a_posterior(model, 1000), "posterior").assign(w=lambda p: 2 + 0 * p["w"])}
    [ax] = pmg.plot_residuals(idata, model, random_seed=1)
    lower, upper = (ax.lines[k].get_ydata() for k in (-2, -1))
    assert (upper - lower)[-1] > 3 * (upper - lower)[0]


def test_residuals_of_classes_and_of_several_outputs():
    model = pmg.mlp(X, np.where(REAL > 0, "yes", "no"), hidden=4, likelihood="probit")
    idata = a_posterior(model)
    [ax] = pmg.plot_residuals(idata, model, random_seed=1)
    assert ax.get_xlabel() == "probability of yes"
    p = pmg.predict(idata, model, random_seed=1)["probability"].values[:, 1]
    x, r = np.concatenate([line_of(ax, 0), line_of(ax, 1)], axis=1)
    np.testing.assert_allclose(np.sort(x), np.sort(p))
    order = np.argsort(p)
    assert ((r[np.argsort(x)] > ndtri(1 - p[order])) == (REAL > 0)[order]).all()
    with pytest.raises(ValueError, match="kind must be 'quantile' for 'y', which is a class label"):
        pmg.plot_residuals(idata, model, kind="standardised")
    y = pd.DataFrame(rng.normal(size=(40, 2)), columns=["u", "v"])
    model = pmg.mlp(X, y, hidden=4)
    axes = pmg.plot_residuals(a_posterior(model), model, X, y)
    assert [ax.get_xlabel() for ax in axes] == ["predicted mean of u", "predicted mean of v"]


# Posterior predictive checks


def test_predictive_check_of_classes_shows_shares():
    labels = np.where(REAL > 0, "yes", "no")
    model = pmg.mlp(X, labels, hidden=4, likelihood="probit")
    idata = a_posterior(model, 50)
    [ax] = pmg.plot_ppc(idata, model, random_seed=1)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["no", "yes"]
    np.testing.assert_allclose(line_of(ax)[1], [np.mean(REAL <= 0), np.mean(REAL > 0)])
    shares = pmg.predict(idata, model, samples=True, random_seed=1)["samples"].values.mean((0, 2))
    ends = ax.collections[0].get_segments()[1][:, 1]
    np.testing.assert_allclose(ends, np.quantile(shares, [0.05, 0.95]))


def test_predictive_check_of_counts_begins_at_the_least():
    y = rng.poisson(3, 40) + 2
    model = pmg.mlp(X, y, hidden=4, likelihood="poisson", noise=0.1)
    [ax] = pmg.plot_ppc(a_posterior(model, 50), model, X, y, random_seed=1)
    at, share = line_of(ax)
    np.testing.assert_allclose(share[np.isin(at, y)], np.unique(y, return_counts=True)[1] / 40)
    assert at[0] <= 2


@pytest.mark.parametrize("shape", [(40,), (40, 2)])
def test_predictive_check_of_real_numbers_is_drawn_by_arviz(shape):
    y = rng.normal(size=shape)
    model = pmg.mlp(X, y, hidden=4)
    axes = pmg.plot_ppc(a_posterior(model, 100), model, draws=20, random_seed=1)
    assert len(axes) == y[0].size
    for ax, observed in zip(axes, y.reshape(40, -1).T, strict=True):
        black = [line for line in ax.lines if line.get_color() in ("k", "black", "#000000")]
        assert black
        assert len(ax.lines) >= 20
        x = black[0].get_xdata()
        assert observed.min() - 1 < x.min() < x.max() < observed.max() + 1


@pytest.mark.slow
def test_partial_dependence_where_inputs_are_missing():
    """The grid and the marks are those of known values, and rows with missing ones count."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(50, 5, size=(30, 2)), columns=["a", "b"])
    y = X["a"].to_numpy().copy()
    X = X.mask(rng.random(X.shape) < 0.2)
    with pmg.mlp(X, y, [], standardise=True) as model:
        idata = pm_sample(model, 30)
    [ax] = np.ravel(pmg.plot_partial_dependence(idata, model, "a"))
    line = ax.lines[0]
    np.testing.assert_allclose(np.asarray(line.get_xdata(), float), np.unique(X["a"].dropna()))  # fewer than 30
    assert np.isfinite(np.asarray(line.get_ydata(), float)).all()

"""The estimators: scikit-learn's own checks, and what users do with them."""

import copy
import dataclasses
import inspect
import json
import pickle

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import pymc_gibbsnn as pmg
from pymc_gibbsnn._frames import with_indicators
from tests.helpers import slow
from tests.test_docstrings import listed

# Chains of a few draws, as most tests here have, seldom agree
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"hidden": 3, "draws": 30, "tune": 30, "chains": 2, "random_state": 0}
LINEAR = SHORT | {"hidden": []}  # is compiled in less than half the time
ONE_NOISE = {"noise_hidden": None}
rng = np.random.default_rng(0)
n = 60
FRAME = pd.DataFrame(
    {
        "age": rng.integers(20, 80, n),
        "city": rng.choice(["Oslo", "Lima", "Rome"], n),
        "plan": pd.Categorical(rng.choice(["b", "a"], n), categories=["b", "a"]),
        "member": rng.random(n) < 0.5,
    }
)
PRICE = 100 * FRAME["age"] + 2000 * (FRAME["city"] == "Oslo") + 300 * rng.normal(size=n)


@pytest.fixture(scope="module")
def regressor():
    return pmg.NetworkRegressor(**LINEAR, **ONE_NOISE).fit(FRAME, PRICE)


@pytest.fixture(scope="module")
def classifier():
    return pmg.NetworkClassifier(**LINEAR).fit(FRAME, np.where(FRAME["city"] == "Oslo", "north", "south"))


def test_a_fit_warns_if_its_chains_disagree():
    said = r"do not agree yet on the outputs: R-hat goes up to .*\.\nDraw more.* set by tune= and draws="
    with pytest.warns(ConvergenceWarning, match=said) as caught:
        pmg.NetworkRegressor(**LINEAR | {"tune": 1, "draws": 6}, **ONE_NOISE).fit(FRAME, PRICE)
    assert [warning.filename for warning in caught if warning.category is ConvergenceWarning] == [__file__]


def test_a_fit_whose_chains_agree_does_not_warn(recwarn):
    network = pmg.NetworkRegressor(**LINEAR | {"tune": 200, "draws": 300}, **ONE_NOISE).fit(FRAME, PRICE)
    assert network.summary().chains_agree
    pmg.NetworkRegressor(**LINEAR | {"tune": 0, "draws": 3}, **ONE_NOISE).fit(FRAME, PRICE)  # too few draws to tell
    assert not [warning for warning in recwarn if warning.category is ConvergenceWarning]


@pytest.mark.slow
@parametrize_with_checks([pmg.NetworkRegressor(**SHORT), pmg.NetworkClassifier(**SHORT)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pmg.NetworkRegressor, pmg.NetworkClassifier])
def test_a_pipeline_scores_as_its_estimator(kind, monkeypatch):
    """scikit-learn skips this check for estimators that are tagged as not deterministic."""
    monkeypatch.setattr(
        estimator_checks, "get_tags", lambda one: dataclasses.replace(get_tags(one), non_deterministic=False)
    )
    estimator_checks.check_pipeline_consistency(kind.__name__, kind(**SHORT))


def test_the_order_of_rows_changes_predictions_within_their_error(regressor):
    mean, sd = regressor.predict(FRAME, return_std=True)
    error = sd * (2 / 60) ** 0.5  # at most, of the difference of two means over 60 draws
    assert (abs(regressor.predict(FRAME[::-1])[::-1] - mean) < 5 * error).all()


@pytest.mark.parametrize("kind", [pmg.NetworkRegressor, pmg.NetworkClassifier])
def test_settings_are_keywords_that_the_docstring_lists(kind):
    hidden, *others = inspect.signature(kind).parameters.values()
    assert hidden.name == "hidden"
    assert {one.kind for one in others} == {inspect.Parameter.KEYWORD_ONLY}
    names = {hidden.name, *(one.name for one in others)}
    assert names == set(kind().get_params()) == listed(inspect.getdoc(kind))
    assert ("noise_hidden" in names) == (kind is pmg.NetworkRegressor)
    assert clone(kind(7, prior=2.0)).get_params() == kind().get_params() | {"hidden": 7, "prior": 2.0}
    assert kind() != kind()  # two fits are not equal because their settings are


@pytest.mark.parametrize(
    ("settings", "widths"),
    [
        ({}, (10, 7)),
        ({"noise": [0.1, 0.1, "learned"]}, (10, 7)),
        ({"noise_hidden": 4}, (4, 7)),
        ({"noise_hidden": None}, None),
        ({"noise_hidden": 2, "likelihood": "student"}, (2, 7)),
        ({"likelihood": "student"}, None),
        ({"noise": 0.1}, None),
        ({"activation": "tanh"}, None),
        ({"activation": np.tanh}, None),
    ],
)
def test_the_noise_of_rows_is_learned_unless_something_else_is_asked_for(settings, widths):
    network = pmg.NetworkRegressor(hidden=3, **settings)
    X = with_indicators("X", FRAME)
    model = network._model(X, PRICE)
    assert ("W1_noise" in model.named_vars) == (widths is not None)
    if widths is not None:
        assert model["W1_noise"].eval().shape == widths
    several = network._model(X, np.stack([PRICE, PRICE], axis=1))
    assert ("W1_noise" in several.named_vars) == isinstance(settings.get("noise_hidden"), int)


@pytest.mark.slow
def test_intervals_are_wide_where_rows_are_noisy():
    x = rng.uniform(-2, 2, (200, 1))
    y = x[:, 0] + np.where(x[:, 0] > 0, 0.5, 0.05) * rng.normal(size=200)
    fit = pmg.NetworkRegressor(**SHORT | {"draws": 200, "tune": 200}).fit(x, y)
    _, (low, high) = fit.predict([[-1.0], [1.0]], return_std=True)
    assert high > 3 * low


def test_predictions_have_the_units_of_the_targets(regressor):
    mean, sd = regressor.predict(FRAME, return_std=True)
    assert regressor.score(FRAME, PRICE) > 0.5
    assert mean.shape == sd.shape == (n,)
    assert 100 < sd.mean() < PRICE.std()
    low, high = regressor.predict_interval(FRAME, 0.9).T
    assert 0.7 < ((low < PRICE) & (high > PRICE)).mean() <= 1
    np.testing.assert_allclose(regressor.predict(FRAME, quantiles=[0.05, 0.95]), np.stack([low, high], axis=1))
    drawn = regressor.sample_y(FRAME, 40)
    assert drawn.shape == (n, 40)
    assert abs((drawn.mean(1) - mean) / sd).mean() < 0.3
    np.testing.assert_array_equal(regressor.predict(FRAME), mean)
    assert -9 < regressor.log_score(FRAME, PRICE) < -5


def test_categories_become_indicators(regressor):
    assert regressor.features_ == ["age", "city=Lima", "city=Oslo", "city=Rome", "plan=b", "plan=a", "member"]
    assert list(regressor.feature_names_in_) == ["age", "city", "plan", "member"]
    assert regressor.n_features_in_ == 4
    in_oslo, in_lima = (regressor.predict(FRAME.assign(city=city)).mean() for city in ("Oslo", "Lima"))
    assert in_oslo > in_lima + 500
    with pytest.raises(ValueError, match="column 'city' of X holds 'Paris'"):
        regressor.predict(FRAME.assign(city="Paris"))


def test_probabilities(classifier):
    p = classifier.predict_proba(FRAME)
    assert list(classifier.classes_) == ["north", "south"]
    np.testing.assert_allclose(p.sum(1), 1)
    truth = np.where(FRAME["city"] == "Oslo", "north", "south")
    assert (classifier.predict(FRAME) == truth).mean() > 0.9
    assert classifier.log_score(FRAME, truth) > np.log(0.5)
    with pytest.raises(ValueError, match="found 'east'"):
        classifier.log_score(FRAME, np.where(FRAME["city"] == "Oslo", "north", "east"))


@pytest.mark.parametrize(
    ("how", "which"),
    [("file", "regressor"), slow("pickle", "classifier"), slow("file", "classifier"), slow("pickle", "regressor")],
)
def test_a_fit_can_be_kept(which, how, tmp_path, request):
    fit = request.getfixturevalue(which)
    if how == "file":
        fit.save(tmp_path / "fit.nc")
        again = type(fit).load(tmp_path / "fit.nc")
        settings = json.loads(xr.open_dataset(tmp_path / "fit.nc", engine="scipy").attrs["pymc_gibbsnn"])
        assert settings["parameters"]["hidden"] == fit.hidden
    else:
        again = pickle.loads(pickle.dumps(fit))
    assert again.get_params() == fit.get_params()
    predict = "predict" if which == "regressor" else "predict_proba"
    np.testing.assert_allclose(getattr(again, predict)(FRAME), getattr(fit, predict)(FRAME), rtol=1e-9)
    assert again.model_["X"].get_value().shape[0] == 2
    point = fit.model_.initial_point()
    for name in ("W1", "b1", "variance_y" if which == "regressor" else "precision_W1"):  # with the priors of the data
        found, expected = (one.model_.compile_logp(vars=one.model_[name])(point) for one in (again, fit))
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    again.summary()


def test_what_a_file_cannot_hold(regressor, tmp_path):
    with pytest.raises(NotFittedError):
        pmg.NetworkRegressor().save(tmp_path / "fit.nc")
    regressor.save(tmp_path / "fit.nc")
    with pytest.raises(ValueError, match="no fit of NetworkClassifier"):
        pmg.NetworkClassifier.load(tmp_path / "fit.nc")
    (tmp_path / "other.nc").write_text("text")
    with pytest.raises(ValueError, match="no file that save"):
        pmg.NetworkRegressor.load(tmp_path / "other.nc")
    own = copy.copy(regressor).set_params(activation=abs)
    with pytest.raises(ValueError, match=r"activation.* cannot be saved"):
        own.save(tmp_path / "own.nc")


def test_posteriors_cannot_be_updated(regressor):
    assert not hasattr(regressor, "partial_fit")
    with pytest.raises(AttributeError, match="Call fit with old and new rows"):
        regressor.partial_fit(FRAME, PRICE)


@pytest.mark.slow
def test_in_pipelines_and_searches():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X, y = X[:100], y[:100]
    pipeline = make_pipeline(make_column_transformer((StandardScaler(), ["bmi", "bp"])), pmg.NetworkRegressor(**SHORT))
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    search = GridSearchCV(pmg.NetworkRegressor(**SHORT), {"hidden": [2, 3]}, cv=2, n_jobs=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    Z, labels = load_breast_cancer(return_X_y=True)
    assert cross_val_score(pmg.NetworkClassifier(**SHORT), Z[:100], labels[:100], cv=2).mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["normal", "laplace", "lognormal", "gamma", "poisson"])
def test_likelihoods_in_their_units(likelihood, tmp_path):
    y = np.round(PRICE.clip(lower=1)) if likelihood == "poisson" else PRICE.clip(lower=1)
    fit = pmg.NetworkRegressor(likelihood=likelihood, **SHORT).fit(FRAME, y)
    assert abs(fit.predict(FRAME).mean() / y.mean() - 1) < 0.2
    fit.save(tmp_path / "fit.nc")
    again = pmg.NetworkRegressor.load(tmp_path / "fit.nc")
    np.testing.assert_allclose(again.predict(FRAME), fit.predict(FRAME), rtol=1e-9)


@pytest.mark.slow
def test_missing_numbers(tmp_path):
    holes = FRAME.assign(age=FRAME["age"].where(rng.random(n) < 0.8))
    fit = pmg.NetworkRegressor(**SHORT).fit(holes, PRICE)
    mean, sd = fit.predict(FRAME.assign(age=np.nan).head(), return_std=True)
    assert (sd > 1.3 * fit.predict(FRAME.head(), return_std=True)[1]).all()
    fit.save(tmp_path / "fit.nc")
    again = pmg.NetworkRegressor.load(tmp_path / "fit.nc").predict(FRAME.assign(age=np.nan).head())
    np.testing.assert_allclose(again, mean, rtol=1e-9)


@pytest.mark.slow
def test_several_outputs():
    fit = pmg.NetworkRegressor(**SHORT).fit(FRAME, np.stack([PRICE, 5 - PRICE / 2], axis=1))
    assert fit.predict(FRAME).shape == (n, 2)
    assert fit.predict_interval(FRAME).shape == (n, 2, 2)
    assert fit.sample_y(FRAME, 5).shape == (n, 2, 5)

"""Data frames with categories become numbers, and new frames the same ones."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn._frames import with_indicators
from pymc_gibbsnn.prediction.inputs import Inputs, find_observed

FRAME = pd.DataFrame(
    {
        "age": [31, 45, 62, 50],
        "city": ["Oslo", "Lima", None, "Oslo"],
        "plan": pd.Categorical(["b", "a", "b", "b"], categories=["b", "c", "a"]),
        "member": [True, False, True, True],
    },
    index=[7, 8, 9, 5],
)
FEATURES = ["age", "city=Lima", "city=Oslo", "city=missing", "plan=b", "plan=c", "plan=a", "member"]
POWERS = {"precision_W2_log__": -2, "variance_y_log__": 2, "variance_Z3_log__": 2, "variances_y_log__": 2}
NUMBERS = np.array(
    [[31, 0, 1, 0, 1, 0, 0, 1], [45, 1, 0, 0, 0, 0, 1, 0], [62, 0, 0, 1, 1, 0, 0, 1], [50, 0, 1, 0, 1, 0, 0, 1]]
)


def test_categories_become_indicators():
    found = with_indicators("X", FRAME)
    assert list(found.columns) == FEATURES
    assert list(found.index) == list(FRAME.index)
    np.testing.assert_array_equal(found.to_numpy(float), NUMBERS)


def test_frames_of_polars():
    frame = pl.DataFrame({"age": [31, 45, 62], "city": ["Oslo", "Lima", None]})
    frame = frame.with_columns(pl.Series("plan", ["b", "a", "b"], dtype=pl.Enum(["b", "c", "a"])))
    found = with_indicators("X", frame)
    assert list(found.columns) == FEATURES[:-1]
    np.testing.assert_array_equal(found.to_numpy(float), NUMBERS[:3, :-1])
    assert with_indicators("X", frame.select("age")) is not None


@pytest.mark.parametrize("X", [NUMBERS, FRAME[["age", "member"]], [[1.0, 2.0]], pd.DataFrame(NUMBERS)])
def test_numbers_stay_as_they_are(X):
    assert with_indicators("X", X) is X


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [2], [1, 0]])
def test_new_rows_have_the_columns_of_the_data(rows):
    """Whatever the order of their columns, and whichever categories they hold."""
    new = FRAME.iloc[rows][["member", "city", "plan", "age"]]
    found = with_indicators("X_new", new, FEATURES)
    assert list(found.columns) == FEATURES
    np.testing.assert_array_equal(found.to_numpy(float), NUMBERS[rows])
    encoded = pd.DataFrame(NUMBERS, columns=FEATURES)
    assert with_indicators("X_new", encoded, FEATURES) is encoded


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (FRAME.assign(city="Rome"), "column 'city' of X_new holds 'Rome', .* categories are .*Lima"),
        (FRAME.assign(plan=None), "column 'plan' of X_new holds missing values"),
        (FRAME.drop(columns="city"), r"lacks \['city'\]"),
        (FRAME.drop(columns="age").assign(weight=1.0), r"lacks \['age'\] and it has \['weight'\] beside"),
        (FRAME.assign(age="old"), "found 'old' in the column 'age'"),
    ],
)
def test_other_frames_are_refused(new, error):
    model = pmg.mlp(FRAME, np.arange(4.0), 2, standardise=True)
    with pytest.raises(ValueError, match=error):
        Inputs(model, find_observed(model)).find(new, {})


def test_names_that_could_be_mistaken():
    with pytest.raises(ValueError, match="'city', of categories, and 'city=a', which is named like one"):
        with_indicators("X", FRAME.assign(**{"city=a": 1.0}))


def test_dates_are_refused():
    with pytest.raises(ValueError, match=r"in the column 'born'\. Make numbers of dates"):
        pmg.mlp(FRAME.assign(born=pd.Timestamp("2020-02-01")), np.arange(4.0), 2)


def test_standardised_inputs():
    model = pmg.mlp(FRAME, np.arange(4.0), 2, standardise=True)
    assert list(model.coords["feature"]) == FEATURES
    mean, scale = (model[name].get_value() for name in ("X_mean", "X_scale"))
    is_number = np.array([name in ("age", "member") for name in FEATURES])
    np.testing.assert_allclose(mean, np.where(is_number, NUMBERS.mean(0), 0))
    np.testing.assert_allclose(scale, np.where(is_number, NUMBERS.std(0), 1))


@pytest.mark.parametrize("likelihood", ["student", "normal", "laplace", "mixture"])
def test_the_model_is_that_of_standardised_data_in_other_units(likelihood):
    """The log density of all variables in their units, less that of their units, is that of standardised data."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(50, 7, size=(9, 2)), rng.normal(-3e4, 500, size=9)
    center, scale = y.mean(), y.std()
    raw = pmg.mlp(X, y, 3, standardise=True, likelihood=likelihood)
    plain = pmg.mlp((X - X.mean(0)) / X.std(0), (y - center) / scale, 3, likelihood=likelihood)
    point = {name: x + 0.1 * rng.normal(size=x.shape) for name, x in plain.initial_point().items()}
    in_units, volume = {}, 9 * np.log(scale)  # of y
    for name, x in point.items():
        logarithmic = POWERS.get(name)
        if logarithmic:
            in_units[name] = x + logarithmic * np.log(scale)
        elif name in ("W2", "b2", "Z3", "centers_y"):
            in_units[name] = scale * x + (center if name == "Z3" else 0)
            volume += x.size * np.log(scale)
        else:
            in_units[name] = x
    found, expected = raw.compile_logp(mode="AS_WRITTEN")(in_units), plain.compile_logp(mode="AS_WRITTEN")(point)
    np.testing.assert_allclose(found + volume, expected, rtol=1e-7)


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial", "gamma"])
def test_the_level_of_positive_numbers(likelihood):
    y, exposure = np.array([400, 900, 500, 600]), {"exposure": 2.0} if likelihood != "gamma" else {}
    model = pmg.mlp(NUMBERS, y, 2, standardise=True, likelihood=likelihood, **exposure)
    np.testing.assert_allclose(model["y_mean"].get_value(), np.log(600 / exposure.get("exposure", 1)), rtol=1e-3)


@pytest.mark.parametrize(("likelihood", "classes"), [("probit", 2), ("probit", 3), ("categorical", 3)])
def test_classes_have_no_mean(likelihood, classes):
    """Their last layer is that of inputs that were standardised by hand."""
    x, y = NUMBERS[[0, 1, 2, 3, 0, 1]], np.arange(6) % classes
    raw = pmg.mlp(x, y, 2, standardise=True, likelihood=likelihood)
    plain = pmg.mlp((x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1), y, 2, likelihood=likelihood)
    assert "y_mean" not in raw.named_vars
    point = plain.initial_point()
    found, expected = (model.compile_logp(mode="AS_WRITTEN")(point) for model in (raw, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-7)

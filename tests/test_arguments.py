"""Arguments of a wrong kind are refused by name, before anything is computed: what was found, and what to do."""

from datetime import date

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn.networks.likelihoods.class_labels import numbered
from tests.helpers import in_python

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 3))
Y = X[:, 0]
LABELS = np.arange(12) % 3
EMPTY = xr.Dataset(coords={"chain": [0], "draw": [0]})
NAMES = np.array(["rose", "lily", "iris"])[LABELS]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.float64(0.5), "0.5"),
        (np.array([1.0, 2.0]), "[1. 2.]"),
        (np.zeros((3, 2)), "an array of shape (3, 2)"),
        (list(range(100)), "list of length 100: [0, 1, 2"),
        (pmg.GibbsNN, "the class GibbsNN"),
        (pm.Model(), "a PyMC model"),
        (pt.vector("v"), "the variable 'v'"),
        (pt.vector("v") + 1, "an expression of PyTensor"),
    ],
)
def test_values_in_words(value, words):
    assert describe(value).startswith(words)
    assert len(describe(value)) < 100


def refuses(call, message):
    with pytest.raises((TypeError, ValueError), match=message) as refusal:
        call()
    assert len(str(refusal.value)) < 400
    assert str(refusal.value).endswith(".")


MODELS = [
    (lambda **k: pmg.mlp(**({"X": X, "y": Y, "hidden": 3} | k)), arguments, message)
    for arguments, message in [
        ({"noise": pm.HalfNormal.dist()}, "noise must be a standard deviation.*found an expression"),
        ({"noise": {}}, "noise must be a standard deviation.*found {}"),
        ({"noise": None}, "noise must be a standard deviation.*found None"),
        ({"noise": "0.1"}, "noise must be a standard deviation.*found '0.1'"),
        ({"noise": [0.1, np.inf, 0.1]}, "noise must be a standard deviation"),
        ({"hidden": None}, "hidden must hold positive integers.*found None"),
        ({"hidden": "3"}, "hidden must hold positive integers.*found '3'"),
        ({"hidden": [[3]]}, "hidden must hold positive integers.*found"),
        ({"hidden": True}, "hidden must hold positive integers.*found True"),
        ({"hidden": np.nan}, "hidden must hold positive integers.*found nan"),
        ({"X": np.ma.masked_greater(X, 1), "missing": "refuse"}, "X holds 3 masked values: drop or impute"),
        ({"X": np.where(X > 1, np.nan, X), "missing": "refuse"}, "X holds 3 values that are NaN"),
        ({"X": np.where(X > 1, np.inf, X)}, "X holds 3 values that are NaN or infinite"),
        ({"X": X * [1, np.nan, 1]}, r"X holds no value in the columns \[1\]: leave these columns out"),
        ({"missing": "impute"}, "missing must be"),
        ({"y": np.ma.masked_greater(Y, 0.5)}, "y holds .* masked values"),
        ({"X": None}, "X must be an array of numbers; found None"),
        ({"X": pt.matrix("x")}, "X must be an array of numbers; found the variable 'x'"),
        ({"y": [None, *Y[1:]]}, "y must hold numbers; found None"),
        ({"X": [[1.0, 2.0], [3.0]]}, "X must be an array; found lists of different lengths in it"),
        ({"y": [[1.0], [2.0, 3.0]]}, "y must be an array; found lists of different lengths in it"),
        ({"y": [[0], [1, 2]], "likelihood": "probit"}, "y must be an array; found lists of different lengths in it"),
        ({"likelihood": "poisson"}, "y must hold whole numbers from 0 up; found"),
        ({"likelihood": "gamma"}, "y must hold positive numbers for this likelihood; found"),
        ({"likelihood": "lognormal"}, "y must hold positive numbers for this likelihood; found"),
        ({"likelihood": "beta", "y": np.ones(12)}, "y must hold numbers below 1 for this likelihood; found"),
        (
            {"likelihood": ["normal"]},
            r"likelihood must be 'student', 'normal', .* 'categorical' or 'mixture'; found \['normal'\]",
        ),
        ({"trials": 3}, "trials= goes with likelihood='binomial'; found likelihood=None"),
        ({"exposure": 3}, "exposure= goes with likelihood='poisson' or likelihood='negative_binomial'; found"),
        ({"upper": 3, "likelihood": "student"}, "upper= goes with likelihood='normal'; found likelihood='student'"),
        ({"likelihood": "poisson", "y": LABELS, "exposure": 0}, "exposure must be how much or how long was counted"),
        ({"likelihood": "poisson", "y": LABELS, "exposure": [1, 2]}, "exposure must be one number or an array"),
        ({"likelihood": "normal", "upper": [1, 2]}, "upper must be one number or an array of the shape of y"),
        ({"likelihood": "binomial", "y": LABELS, "trials": 0}, "trials must be a positive integer"),
        ({"likelihood": "binomial", "y": LABELS + 1}, "y holds 2 successes, more than there are trials"),
        (
            {"likelihood": "binomial", "y": LABELS, "trials": [1, 2]},
            r"trials must be one number or an array of the shape",
        ),
        ({"likelihood": "binomial", "y": LABELS, "trials": LABELS + 0.5}, "trials must hold whole numbers"),
        ({"bias": "no"}, "bias must be True or False; found 'no'"),
        ({"bias": 1}, "bias must be True or False; found 1"),
    ]
]
MODELS += [
    (lambda **k: pmg.classical_mlp(**({"X": X, "y": LABELS, "hidden": 3} | k)), arguments, message)
    for arguments, message in [
        ({"batch_size": 5, "total_size": -30}, "total_size must be a positive integer.*found -30"),
        ({"batch_size": 5, "total_size": "all"}, "total_size must be a positive integer.*found 'all'"),
        ({"batch_size": 2.5}, "batch_size must be a positive integer; found 2.5"),
        ({"batch_size": True}, "batch_size must be a positive integer; found True"),
        ({"batch_size": 0}, "batch_size must be a positive integer; found 0"),
        ({"prior_variance": "a"}, "prior_variance must be a variance.*found 'a'"),
        ({"noise": "a"}, "noise must be a positive, finite number; found 'a'"),
        ({"bias": "no"}, "bias must be True or False"),
        ({"hidden": None}, "hidden must hold positive integers"),
        ({"likelihood": None}, "likelihood must be 'categorical', 'bernoulli', .*; found None"),
    ]
]
MODELS += [
    (lambda **k: pmg.wide_mlp(**({"X": X, "y": Y, "width": 3} | k)), arguments, message)
    for arguments, message in [
        ({"width": [8, 8]}, r"width must be a positive integer, the same for all hidden layers; found \[8, 8\]"),
        ({"width": "8"}, "width must be a positive integer.*found '8'"),
        ({"depth": 0}, "depth must be a positive integer; found 0"),
        ({"noise": pm.HalfNormal.dist()}, "noise must be a positive, finite number; found an expression"),
        ({"bias_scale": -1}, "bias_scale must be a positive, finite number, or 0 for no bias; found -1"),
        ({"weight_scale": 0}, "weight_scale must be a positive, finite number; found 0"),
    ]
]


@pytest.mark.parametrize(("build", "arguments", "message"), MODELS)
def test_models(build, arguments, message):
    refuses(lambda: build(**arguments), message)


# Labels

CLASSIFIERS = [
    lambda y: pmg.mlp(X, y, 2, likelihood="probit", noise=0.1, prior=None),
    lambda y: pmg.classical_mlp(X, y, 2),
]


@pytest.mark.parametrize("build", CLASSIFIERS)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (LABELS + 1, "count from 0; found labels from 1 to 3, .* class 0 .*return_inverse"),
        (LABELS - 1, "count from 0; found labels from -1 to 1"),
        (2 * (LABELS > 0), "count from 0; found labels from 0 to 2, .* class 1 without examples.*return_inverse"),
        (10_000_000 * (LABELS > 0), "found labels from 0 to 10000000, .* class 1 without examples"),
        (10**18 * (LABELS > 0), "found labels from 0 to 1000000000000000000, .* class 1 without examples"),
        (np.where(LABELS > 0, np.uint64(2**64 - 1), np.uint64(0)), "found labels from 0 to 18446744073709551615"),
        (np.ones(12, int), "at least two classes; found only 1"),
        (np.ma.masked_equal(LABELS, 2), "y holds 4 masked labels"),
        ([None, *NAMES[1:]], "integer labels or names of classes; found None"),
        (np.array(["a"] * 12), "at least two classes; found only 'a'"),
        (LABELS[:, None], r"shape \(n,\)"),
    ],
)
def test_labels_that_are_no_labels(build, y, message):
    refuses(lambda: build(y), message)


@pytest.mark.parametrize("build", CLASSIFIERS)
def test_labels_by_name(build):
    model = build(NAMES)
    assert model.coords["class"] == ("iris", "lily", "rose")
    np.testing.assert_array_equal(model["y_data"].get_value(), 2 - LABELS)
    order = ["rose", "lily", "tulip", "iris"]  # nobody has a tulip
    for y in (pd.Categorical(NAMES, categories=order), pd.Series(pd.Categorical(NAMES, categories=order))):
        model = build(y)
        assert model.coords["class"] == tuple(order)
        np.testing.assert_array_equal(model["y_data"].get_value(), np.array([0, 1, 3])[LABELS])
    refuses(lambda: build(pd.Categorical([None, *NAMES[1:]], categories=order)), "y holds 1 missing labels")


@pytest.mark.parametrize(
    ("categories", "name"),
    [
        (pd.interval_range(0, 3), "(0, 1]"),
        (pd.date_range("2026-01-01", periods=3), "2026-01-01 00:00:00"),
        (pd.date_range("2026-01-01", periods=3, tz="UTC"), "2026-01-01 00:00:00+00:00"),
        (pd.period_range("2026", periods=3, freq="Y"), "2026"),
        ([date(2026, 1, day) for day in (1, 2, 3)], "2026-01-01"),
        (pd.Index([("a", 1), ("b", 2), ("c", 3)], tupleize_cols=False), "('a', 1)"),
        (pd.Index([1, "b", 2.5], dtype=object), "1"),
        ([0.5, 1.5, 2.5], 0.5),
        ([True, False], True),
    ],
)
def test_classes_have_names_that_files_can_hold(tmp_path, categories, name):
    """And labels that are given later are known by them."""
    y = pd.Categorical.from_codes(LABELS % len(categories), categories)
    model = pmg.mlp(X, y, 2, noise=0.1, prior=None, likelihood="probit")
    names = np.asarray(model.coords["class"])
    assert names[0] == name
    xr.Dataset(coords={"class": names}).to_netcdf(tmp_path / "data.nc")
    np.testing.assert_array_equal(xr.load_dataset(tmp_path / "data.nc")["class"], names)
    for later in (y, pd.Series(y)):
        np.testing.assert_array_equal(numbered("y_new", later, model.coords["class"]), LABELS % len(categories))


def test_classes_of_the_same_name_are_refused():
    y = pd.Categorical.from_codes(LABELS, pd.Index([1, "1", 2], dtype=object))
    refuses(lambda: pmg.classical_mlp(X, y, 2), r"y must hold classes of different names; found \['1' '1' '2'\]")


@pytest.mark.parametrize(
    "names",
    [
        pd.date_range("2026-01-01", periods=3),
        pd.period_range("2026-01-01", periods=3),
        pd.Index([("a", 1), ("b", 2), ("c", 3)], tupleize_cols=False),
    ],
)
def test_labels_of_other_types_are_told_what_makes_names_of_them(names):
    y = names[LABELS]
    refuses(lambda: pmg.classical_mlp(X, y, 2), r"pd.Categorical\(y\) takes dates, tuples and the like for names")
    assert len(pmg.classical_mlp(X, pd.Categorical(y), 2).coords["class"]) == 3


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (pd.MultiIndex.from_product([range(3), range(4)]), r"\(0, 0\)"),
        (pd.interval_range(0, 12), r"Interval\(0, 1"),
        (pd.date_range("2026-01-01", periods=12, tz="UTC"), "Timestamp"),
        ([date(2026, 1, 1 + day) for day in range(12)], "datetime.date"),
    ],
)
@pytest.mark.parametrize("step", [pmg.GibbsNN, pmg.MALA])
def test_names_of_rows_of_which_no_file_can_be_made(step, names, shown):
    def build(names):
        with pm.Model(coords={"row": names}):
            pm.Normal("y", X @ pm.Normal("w", shape=3), 1.0, observed=Y, dims="row")
            return step()

    refuses(lambda: build(names), rf"along the dimension 'row' hold {shown}.* such as coords={{'row': \[str\(name\)")
    build([str(name) for name in names])
    build(pd.date_range("2026-01-01", periods=12))


@pytest.mark.parametrize("build", CLASSIFIERS)
def test_integers_in_an_array_of_objects(build):
    for y in (LABELS.astype(object), [*map(np.int64, LABELS)]):
        np.testing.assert_array_equal(build(y)["y_data"].get_value(), LABELS)
    refuses(lambda: build(np.array([0.5, *LABELS[1:]], object)), "integer labels or names of classes; found 0.5 among")


def test_two_classes_by_name():
    model = pmg.classical_mlp(X, NAMES == "rose", 2, likelihood="bernoulli")
    np.testing.assert_array_equal(model["y_data"].get_value(), LABELS == 0)
    model = pmg.classical_mlp(X, np.where(NAMES == "rose", "yes", "no"), 2, likelihood="bernoulli")
    assert model.coords["class"] == ("no", "yes")
    refuses(lambda: pmg.classical_mlp(X, NAMES, 2, likelihood="bernoulli"), "2 classes, 0 and 1 or two names")


# Steps


@pytest.fixture(scope="module")
def network():
    return pmg.mlp(X, Y, 3, noise=0.1, prior=None)


@pytest.fixture(scope="module")
def classical():
    return pmg.classical_mlp(X, LABELS, 2)


@pytest.mark.parametrize(
    ("step", "arguments", "message"),
    [
        ("GibbsNN", {"collapse": "yes"}, "collapse must be True or False; found 'yes'"),
        ("GibbsNN", {"scale_move": "no"}, "scale_move must be True or False; found 'no'"),
        ("GibbsNN", {"interweave": True}, "interweave must be 'auto', 'pieces', 'langevin' or False; found True"),
        ("GibbsNN", {"schedule": 3}, "schedule must be 'sequential' or 'layer-parallel'; found 3"),
        ("GibbsNN", {"anneal": "1"}, "anneal must be a positive, finite number, .* found '1'"),
        ("GibbsNN", {"anneal": True}, "anneal must be a positive, finite number, .* found True"),
        ("GibbsNN", {"sweeps_per_draw": "2"}, "sweeps_per_draw must be a positive integer or 'auto'; found '2'"),
        ("GibbsNN", {"sweeps_per_draw": 1.5}, "sweeps_per_draw must be a positive integer or 'auto'; found 1.5"),
        ("GibbsNN", {"compile_kwargs": "NUMBA"}, "compile_kwargs must be a dictionary, .*'JAX'.* found 'NUMBA'"),
        ("GibbsNN", {"initial_point": {"W1": 1.0}}, r"initial_point\['W1'\] must have the shape \(3, 3\); found \(\)"),
        ("GibbsNN", {"initial_point": {}}, "initial_point must hold a value of 'W1'"),
        ("PCN", {"beta": "auto"}, r"beta must be a number in \(0, 1\], or None to be tuned; found 'auto'"),
        ("PCNL", {"beta": 2}, r"beta must be a number in \(0, 1\], or None to be tuned; found 2"),
        ("PCN", {"reparametrise": "no"}, "reparametrise must be True or False; found 'no'"),
        ("MALA", {"reparametrise": "no"}, "reparametrise must be True or False; found 'no'"),
        ("MALA", {"step_size": "a"}, "step_size must be a positive, finite number, or None to be tuned; found 'a'"),
        ("MALA", {"momentum_refresh": None}, "momentum_refresh must be .* found None"),
        ("FNBG", {"scale": "a"}, "scale must be the standard deviation of the proposals, .* found 'a'"),
        ("FNBG", {"scale": [None]}, r"scale must be .* found \[None\]"),
        ("FNBG", {"scale": 0}, "scale must be .* found 0"),
        ("FNBG", {"target_accept": "a"}, "target_accept must be a number between 0 and 1; found 'a'"),
        ("FNBG", {"stratify": "yes"}, "stratify must be True or False; found 'yes'"),
        ("FNBG", {"blocks": None}, "blocks must be a positive integer .* found None"),
        ("FNBG", {"blocks": 2.5}, "blocks must be a positive integer .* found 2.5"),
        ("FNBG", {"blocks": [[0], "a"]}, "blocks must hold lists of numbers of parameters, not empty; found 'a' as"),
    ],
)
def test_steps(step, arguments, message, network, classical):
    model = classical if step == "FNBG" else network
    refuses(lambda: getattr(pmg, step)(model=model, **arguments), message)


@pytest.mark.parametrize("step", ["GibbsNN", "PCN", "PCNL", "MALA", "FNBG"])
def test_variables_of_steps(step, network):
    make = getattr(pmg, step)
    refuses(lambda: make(["W1"], model=network), r"vars must be a list of variables .* found 'W1': write model\['W1'\]")
    refuses(lambda: make(vars="W1", model=network), r"found 'W1': write model\['W1'\]")
    refuses(lambda: make([network["y"]], model=network), "vars must be free variables .* found the variable 'y'")


def test_starts_of_another_shape(network):
    with network:
        step = pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"})
        for initvals, message in [
            ({"W1": np.zeros((2, 2))}, r"initvals\['W1'\] must have the shape of 'W1', \(3, 3\); found \(2, 2\)"),
            ({"Z2": np.zeros(3)}, r"initvals\['Z2'\] must have the shape of 'Z2', \(12, 3\); found \(3,\)"),
            ({"W9": 0.0}, r"initvals names 'W9', .* it has \['W1'"),
            ([{"W1": np.zeros((3, 3))}], "one mapping, or one for each of the 2 chains; found 1"),
            ([None, {"W1": 0.0}], r"found \(\)"),
            ([None, "prior"], "mappings of names to values; found 'prior'"),
            ("zero", "initvals must be a mapping of names to values, .* found 'zero'"),
        ]:
            refuses(lambda initvals=initvals: pm.sample(5, step=step, chains=2, cores=1, initvals=initvals), message)


def test_starts(network):
    for arguments, message in [
        ({"chains": 0}, "chains must be a positive integer; found 0"),
        ({"chains": 2.5}, "chains must be a positive integer; found 2.5"),
        ({"model": "zero"}, "model must be a PyMC model; found 'zero'"),
        ({"kind": None}, "kind must be 'zero', 'prior' or 'informed'; found None"),
        ({"kind": "informed", "teacher": [1]}, r"teacher must be a mapping .* found \[1\]"),
    ]:
        refuses(lambda arguments=arguments: pmg.initial_values(**({"model": network} | arguments)), message)


def test_blocks_of_a_pilot_run(classical):
    refuses(lambda: pmg.correlated_blocks({"posterior": EMPTY}, classical, largest="a"), "largest must be .* found 'a'")


# pmg.sample


def test_whole_chains(network, classical):
    pytest.importorskip("jax")
    with network:
        step = pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"})
    other = pmg.FNBG(model=classical, compile_kwargs={"mode": "AS_WRITTEN"})
    for arguments, message in [
        ({"step": pmg.GibbsNN}, r"step must be a step method; found the class GibbsNN: write step=GibbsNN\(\)"),
        ({"step": None}, "step must be a step method, .* found None"),
        ({"step": []}, r"step must be a step method, .* found \[\]"),
        ({"step": other}, "step must be made for the model that is sampled; found a FNBG of another model: make it in"),
        ({"var_names": "W1"}, r"var_names must be a list of names; found the name 'W1': write var_names=\['W1'\]"),
        ({"var_names": [network["W1"]]}, "var_names must be a list of names; found the variable 'W1' among them"),
        ({"draws": "10"}, "draws must be a positive integer; found '10'"),
        ({"draws": None}, "draws must be a positive integer; found None"),
        ({"chains": 0}, "chains must be a positive integer; found 0"),
        ({"tune": -1}, "tune must be an integer of at least 0; found -1"),
        ({"thin": 1.5}, "thin must be a positive integer; found 1.5"),
        ({"shards": "2"}, "shards must be a positive integer; found '2'"),
        ({"precision": 32}, "precision must be 'float32' or 'float64'; found 32"),
        ({"devices": "gpus"}, "devices must name a kind of device that JAX finds here, .* found 'gpus'"),
        ({"devices": 3}, "devices must name a kind of device, .* or be a list of JAX's devices, .* found 3"),
        ({"devices": [0]}, r"devices must .* be a list of JAX's devices, .* found \[0\]"),
        ({"store": 3}, "store must be a path; found 3"),
        ({"resume": 3}, "resume must be a path; found 3"),
        ({"local_rows": "no"}, "local_rows must be True or False; found 'no'"),
        ({"model": "network"}, "model must be a PyMC model; found 'network'"),
        ({"initvals": {"W1": np.zeros((2, 2))}}, r"initvals\['W1'\] must have the shape of 'W1', \(3, 3\)"),
        ({"initvals": {"W9": 0.0}}, "initvals names 'W9'"),
        ({"initvals": [{}], "chains": 3}, "one mapping, or one for each of the 3 chains; found 1"),
    ]:
        refuses(lambda k=arguments: pmg.sample(**({"draws": 5, "step": step, "model": network} | k)), message)


# Diagnostics


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3}, r"model must be a PyMC model or widths of layers, such as \(5, 3, 1\); found 3"),
        ({"model": None}, "model must be a PyMC model or widths .* found None"),
        ({"model": (3, "2", 1)}, r"model must hold positive integers, the widths .* found \(3, '2', 1\)"),
        ({"model": (3, 2, 0)}, r"model must hold positive integers, .* found \(3, 2, 0\)"),
        ({"model": (-3, 2, 1)}, r"model must hold positive integers, .* found \(-3, 2, 1\)"),
        ({"n": "20"}, "n must be a positive integer; found '20'"),
        ({"n_test": 0}, "n_test must be a positive integer; found 0"),
        ({"noisy": "no"}, "noisy must be True or False; found 'no'"),
    ],
)
def test_teachers(arguments, message):
    refuses(lambda: pmg.teacher_student(**({"model": (3, 2, 1), "n": 20} | arguments)), message)


def test_xor():
    refuses(lambda: pmg.noisy_xor("8"), "n_train must be a positive multiple of 4, .* found '8'")
    refuses(lambda: pmg.noisy_xor(8, None), "n_test must be a positive multiple of 4, .* found None")


@in_python()
def test_thermalisation(network):
    study = pmg.teacher_student((3, 2, 1), n=20, noise=0.1, random_seed=1)
    for arguments, message in [
        ({"study": network}, "study must be what teacher_student returns; found a PyMC model"),
        ({"starts": "zero"}, r"starts must be a list .* found 'zero': write starts=\['zero'\]"),
        ({"starts": {"W1": 0}}, "starts must be a list .* found {'W1': 0}"),
        ({"starts": ["zero", "warm"]}, "starts must be a list of 'zero', 'prior' or .* found 'warm' among them"),
        ({"starts": [{"W1": 0}]}, r"initvals\['W1'\] must have the shape"),
        ({"step": pmg.GibbsNN}, "step must be a step method; found the class GibbsNN"),
        ({"step": pmg.GibbsNN(model=network)}, "found a GibbsNN of another model: make it in 'with study.model:'"),
        ({"step": pm.Metropolis(model=network)}, "found a CompoundStep of another model"),
        ({"draws": "1000"}, "draws must be an integer of at least 100, two blocks of 50; found '1000'"),
        ({"draws": 99}, "draws must be an integer of at least 100, two blocks of 50; found 99"),
        ({"draws": 200.5}, "draws must be .* found 200.5"),
        ({"tune": -1}, "tune must be an integer of at least 0; found -1"),
        ({"block": "50"}, "block must be an integer of at least 10 draws; found '50'"),
        ({"points": 0}, "points must be a positive integer; found 0"),
        ({"sweeps_per_draw": 0}, "sweeps_per_draw must be a positive integer; found 0"),
        ({"test_function": "mse"}, "test_function must be a function of a dataset; found 'mse'"),
        ({"results": [1]}, r"results must map names .* found \[1\]"),
        ({"results": {"informed": 3}}, r"results\['informed'\] must be what pm.sample returned; found 3"),
        ({"chains": 4, "var_names": ["W1"]}, r"thermalisation sets \['chains', 'var_names'\] of pm.sample itself"),
    ]:
        refuses(lambda k=arguments: pmg.thermalisation(**({"study": study} | k)), message)


@pytest.mark.parametrize("call", [pmg.function_space, pmg.class_probabilities])
def test_posteriors(call, network, classical):
    model = classical if call is pmg.class_probabilities else network
    missing = np.where(X > 1, np.nan, X)
    for arguments, message in [
        ((3, model), "idata must be what pm.sample returned; found 3"),
        (({}, model), "idata must hold the group posterior"),
        (({"posterior": EMPTY}, model, missing), "X_new holds 3 values that are NaN"),
        (({"posterior": EMPTY}, "model"), "model must be a PyMC model; found 'model'"),
    ]:
        refuses(lambda arguments=arguments: call(*arguments), message)


def test_pilot_runs(classical):
    refuses(lambda: pmg.correlated_blocks({}, classical), "idata must hold the group posterior")

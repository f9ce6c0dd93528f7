"""What a user does with a table of numbers: standardise, fit, check, predict, save, load elsewhere, predict again."""

import importlib.util
import subprocess
import sys
from datetime import datetime

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import sparse

import pymc_gibbsnn as pmg
from pymc_gibbsnn import _compat
from tests.helpers import LEAN

AGAIN = """
import sys
import arviz as az, numpy as np, pandas as pd
import pymc_gibbsnn as pmg

folder = sys.argv[1]
train, new = pd.read_csv(folder + "/train.csv"), pd.read_csv(folder + "/new.csv")
model = pmg.mlp(train[["age", "height"]], train["weight"], 3, noise="learned", prior="relevance")
idata = az.from_zarr(folder + "/posterior.zarr") if sys.argv[2] == "zarr" else az.from_netcdf(folder + "/posterior.nc")
found = pmg.predict(idata, model, new, random_seed=1)
np.save(folder + "/again.npy", found["quantiles"].values)
"""


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    y = np.tanh(X[:, 0]) + 0.1 * rng.normal(size=rows)
    return pd.DataFrame({"age": X[:, 0], "height": X[:, 1], "weight": y}, index=[f"p{i}" for i in range(rows)])


@pytest.mark.filterwarnings("ignore:The following trace variables were implicitly frozen")
def test_a_working_day(tmp_path):
    train, new = table(30, 1), table(4, 2)[["age", "height"]]
    recorded = ["W1", "b1", "W2", "b2", "variance_Z2", "variance_A2", "variance_y", "precision_W1", "precision_W2"]
    with pmg.mlp(train[["age", "height"]], train["weight"], 3, noise="learned", prior="relevance") as model:
        idata = pm.sample(
            20,
            tune=20,
            chains=2,
            cores=1,
            step=pmg.GibbsNN(compile_kwargs={"mode": "AS_WRITTEN"}, **LEAN),
            var_names=recorded,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert list(idata["posterior"]["precision_W1"]["feature"].values) == ["age", "height"]
    assert list(idata["posterior"]["W1"].dims) == ["chain", "draw", "hidden_2", "feature"]
    found = pmg.predict(idata, model, new, random_seed=1)
    assert list(found["point"].values) == list(new.index)
    pmg.log_predictive(idata, model)
    assert "elpd" in str(az.loo(idata))

    # What comes with ArviZ: Zarr from version 1 on, NetCDF before.
    file_format = "zarr" if _compat.ARVIZ_1 else "nc"
    (idata.to_zarr if _compat.ARVIZ_1 else idata.to_netcdf)(str(tmp_path / f"posterior.{file_format}"))
    train.to_csv(tmp_path / "train.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    subprocess.run([sys.executable, "-c", AGAIN, str(tmp_path), file_format], check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), found["quantiles"].values)


@pytest.mark.parametrize(
    "make",
    [
        lambda X, y: pmg.mlp(X, y, 2, noise=0.1, prior=None),
        lambda X, y: pmg.classical_mlp(X, y, 2, likelihood="normal"),
        lambda X, y: pmg.wide_mlp(X, y, 2),
    ],
    ids=["mlp", "classical", "wide"],
)
def test_names_of_columns_are_kept_and_checked(make):
    data = table(9, 1)
    model = make(data[["age", "height"]], data[["weight", "height"]])
    assert list(model.coords["feature"]) == ["age", "height"]
    assert list(model.coords["output"]) == ["weight", "height"]
    point = {v.name: np.zeros((1, 1, *v.shape.eval())) for v in model.free_RVs if v.name[0] in "Wb"}
    posterior = {
        "posterior": xr.Dataset(
            {name: (("chain", "draw", *model.named_vars_to_dims[name]), x) for name, x in point.items()}
        )
    }
    with pytest.raises(ValueError, match=r"columns of X_new must be .*'age', 'height'.*found \['height', 'age'\]"):
        pmg.predict(posterior, model, data[["height", "age"]])
    assert pmg.predict(posterior, model, data[["age", "height"]])["mean"].shape == (9, 2)
    assert pmg.predict(posterior, model, data[["height", "age"]].values)["mean"].shape == (9, 2)


def test_columns_of_text():
    """Frames are read; of an array the error names the column, and its advice can be followed as it stands."""
    data, y = table(9, 1)[["age"]].assign(city=["Bern", "Rome", "Oslo"] * 3), table(9, 1)["weight"]
    frames = [data, data.astype({"city": "category"})]
    if importlib.util.find_spec("polars"):
        frames.append(importlib.import_module("polars").DataFrame(data.to_dict("list")))
    for X in frames:
        model = pmg.mlp(X, y, 2, noise=0.1, prior=None)
        assert list(model.coords["feature"])[1:] == [f"city={city}" for city in ("Bern", "Oslo", "Rome")]
    for function, X in ((pmg.mlp, data.to_numpy()), (pmg.classical_mlp, data)):
        column = 1 if function is pmg.mlp else "city"
        with pytest.raises(ValueError, match=f"X must hold numbers; found 'Bern' in the column {column!r}") as refusal:
            function(X, y, 2)
        advice = str(refusal.value).split("Make columns of 0 and 1 of this text: ")[1].rstrip(".")
        others = {"likelihood": "normal"} if function is pmg.classical_mlp else {}
        model = function(eval(advice, {"X": X, "pd": pd}), y, 2, **others)
        assert list(model.coords["feature"])[1:] == [f"{column}_{city}" for city in ("Bern", "Oslo", "Rome")]


def test_frames_of_polars():
    polars = pytest.importorskip("polars")
    data = polars.from_pandas(table(9, 1))
    model = pmg.mlp(data[["age", "height"]], data["weight"], 2, noise=0.1, prior=None)
    assert list(model.coords["feature"]) == ["age", "height"]
    dated = data.with_columns(height=polars.lit(datetime(2020, 1, 1)))[["age", "height"]]
    with pytest.raises(ValueError, match=r"X must hold numbers; found datetime.datetime\(2020, 1, 1"):
        pmg.mlp(dated, data["weight"], 2, noise=0.1, prior=None)
    weights = [v for v in model.free_RVs if v.name[0] in "Wb"]
    point = {
        v.name: (("chain", "draw", *model.named_vars_to_dims.get(v.name, ())), np.zeros((1, 1, *v.shape.eval())))
        for v in weights
    }
    with pytest.raises(ValueError, match="X_new must hold numbers"):
        pmg.predict({"posterior": xr.Dataset(point)}, model, dated)
    for X, method in [(data[["age", "height"]].lazy(), "collect"), (sparse.eye_array(9, 2), "toarray")]:
        with pytest.raises(TypeError, match=rf"X_new must be an array of numbers; found a .*: give X_new.{method}\(\)"):
            pmg.predict({"posterior": xr.Dataset(point)}, model, X)
        with pytest.raises(TypeError, match=rf"X must be an array of numbers; found a .*: give X.{method}\(\)"):
            pmg.mlp(X, data["weight"], 2, noise=0.1, prior=None)
    with pytest.raises(TypeError, match=r"y must be an array of numbers; found a LazyFrame: give y.collect\(\)"):
        pmg.mlp(data[["age", "height"]], data[["weight"]].lazy(), 2, likelihood="probit", noise=0.1, prior=None)
    missing = data.with_columns(height=polars.lit(None, polars.Float64))[["age", "height"]]
    with pytest.raises(ValueError, match=r"X holds no value in the columns \['height'\]: leave"):
        pmg.mlp(missing, data["weight"], 2, noise=0.1, prior=None)
    with pytest.raises(
        ValueError, match=r"those of the data, \['age', 'height'\], in this order; it lacks \['height'\]"
    ):
        pmg.predict({"posterior": xr.Dataset(point)}, model, data[["age"]])

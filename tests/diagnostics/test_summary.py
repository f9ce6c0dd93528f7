import re

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg

X = np.random.default_rng(0).normal(size=(200, 2))


def draws_around(centre, rng, chains=4, draws=500):
    """Independent draws (chain, draw, ...) around the same weights; each chain numbers hidden units in its own way."""
    found = {name: w + 0.01 * rng.normal(size=(chains, draws, *np.shape(w))) for name, w in centre.items()}
    for chain in range(chains):
        order = rng.permutation(3)
        for name in ("W1", "b1", "W2"):
            found[name][chain] = found[name][chain][:, order]
    return found


def idata_of(values, lp=None):
    def dataset(values):
        dims = {name: ["chain", "draw", *(f"{name}_{i}" for i in range(x.ndim - 2))] for name, x in values.items()}
        m, n = next(iter(values.values())).shape[:2]
        coords = {"chain": np.arange(m), "draw": np.arange(n)}
        return xr.Dataset({name: (dims[name], x) for name, x in values.items()}, coords=coords)

    return {"posterior": dataset(values)} | ({} if lp is None else {"sample_stats": dataset({"lp": lp})})


@pytest.fixture
def network():
    """A network, draws of four chains that agree up to the numbers of their units, and log densities."""
    rng = np.random.default_rng(1)
    with pmg.mlp(X, X[:, 0], 3, noise="learned", prior=None) as model:
        centre = {"W1": rng.normal(size=(3, 2)), "b1": rng.normal(size=3), "W2": rng.normal(size=3), "b2": 0.3}
        values = draws_around(centre, rng)
        values["variance_y"] = np.exp(0.1 * rng.normal(size=(4, 500)))
        return model, values, rng.normal(-1000, 5, size=(4, 500))


def test_chains_that_agree_up_to_the_numbers_of_their_units(network):
    model, values, lp = network
    found = pmg.summary(idata_of(values, lp), model)
    assert list(found.index) == ["output", "norm 1", "norm 2", "lp", "variance_y"]
    assert found.loc["output", "numbers"] == 50
    assert (found["apart"] == "").all()
    assert (found["between"] < 0.02).all()
    assert found["ess_bulk"].min() > 1000
    assert found["r_hat"].max() < 1.02
    assert found.attrs["verdict"].startswith("All chains agree: R-hat is at most 1.0")
    np.testing.assert_allclose(found.loc["lp", ["mean", "sd"]].astype(float), [-1000, 5], rtol=0.02)


def test_the_chain_that_is_elsewhere_is_named(network):
    model, values, lp = network
    values["W1"][2, :, :, 0] *= -1
    lp[2] -= 400
    found = pmg.summary(idata_of(values, lp), model)
    assert list(found["apart"]) == ["2", "", "", "2", ""]
    assert found.loc["output", "r_hat"] > 1.1
    assert found.loc["output", "between"] > 0.5
    verdict = found.attrs["verdict"]
    assert verdict.startswith("Chain 2 is apart in output, lp; its log density is 400 below the others'.")
    assert "twice as many tuning steps" in verdict


def test_where_no_two_chains_agree_all_are_named(network):
    model, values, lp = network
    lp += 100 * np.arange(4)[:, None]
    found = pmg.summary(idata_of(values, lp), model)
    assert found.loc["lp", "apart"] == "0, 1, 2, 3"
    assert "No two chains agree." in found.attrs["verdict"]


def test_chains_that_wander_are_told_that_more_draws_may_not_help(network):
    model, values, lp = network
    lp = -1000 + np.cumsum(np.random.default_rng(2).normal(size=lp.shape), axis=1)
    verdict = pmg.summary(idata_of(values, lp), model).attrs["verdict"]
    assert re.match(r"No chain is apart .* \(in lp\) and the smallest ESS is \d+ \(in lp\): draw more", verdict)
    assert "If R-hat stays above 1.1" in verdict


def test_chains_that_are_not_finite_are_named_and_left_out(network):
    model, values, lp = network
    values["W1"][1, 300:] = np.nan
    verdict = pmg.summary(idata_of(values, lp), model).attrs["verdict"]
    assert verdict.startswith("Chain 1 left the finite numbers: cut off the draws that are NaN or infinite")
    assert "All chains agree" in verdict
    values |= {f"variance_{name}": values["variance_y"] for name in ("Z2", "A2")}
    with pytest.raises(ValueError, match=r"'W1' in the posterior holds 1200 values .* leave these chains out"):
        pmg.predict(idata_of(values), model, X[:2])


@pytest.mark.parametrize("dim", ["chain", "draw"])
def test_a_single_chain_or_draw_keeps_its_dimension(network, dim):
    model, values, _ = network
    one = {"posterior": idata_of(values)["posterior"].isel({dim: 0})}
    with pytest.raises(ValueError, match=rf"its posterior has no '{dim}'. .* isel\({dim}=\[0\]\)"):
        pmg.summary(one, model)


def test_few_draws_and_single_chains(network):
    model, values, lp = network
    few = {name: x[:, :30] for name, x in values.items()}
    verdict = pmg.summary(idata_of(few, lp[:, :30]), model, points=5).attrs["verdict"]
    assert re.match(r"No chain is apart from the others, but R-hat goes up to 1.0\d \(in \w.*\)", verdict)
    assert "tuning steps" not in verdict
    one = {name: x[:1] for name, x in values.items()}
    found = pmg.summary(idata_of(one), model, X[:3])
    assert found.loc["output", "numbers"] == 3
    assert found["r_hat"].isna().all()
    assert "lp" not in found.index
    assert found.attrs["verdict"].startswith("A single chain has none")
    with pytest.raises(ValueError, match="at least 4 draws"):
        pmg.summary(idata_of({name: x[:, :3] for name, x in values.items()}), model)


def test_a_chain_that_left_the_finite_numbers_is_apart(network):
    model, values, _ = network
    values["W2"][1, 100:] = np.nan
    found = pmg.summary(idata_of(values), model)
    assert found.loc["output", "apart"] == "1"


def test_a_model_that_is_no_noisy_network():
    rng = np.random.default_rng(2)
    with pm.Model() as model:
        inputs = pm.Data("X", X)
        w, v = pm.Normal("W", 0, 1, shape=(2, 3)), pm.Normal("V", 0, 1, shape=3)
        pm.Normal("y", pm.math.tanh(inputs @ w) @ v, pm.HalfNormal("sigma"), observed=X[:, 0])
    values = {"W": rng.normal(size=(2, 100, 2, 3)), "V": rng.normal(size=(2, 100, 3)), "sigma": rng.random((2, 100))}
    found = pmg.summary(idata_of(values), model, points=10)
    assert set(found.index) == {"output", "norm W", "norm V", "sigma"}
    assert (found["apart"] == "").all()


def test_chains_that_do_not_move_are_named(network):
    model, values, lp = network
    for x in values.values():
        x[1:3] = x[1:3, :1]
    found = pmg.summary(idata_of(values, lp), model)
    assert found.attrs["verdict"].startswith("Chains 1, 2 did not move: all draws have the same outputs. ")
    assert "apart in" not in found.attrs["verdict"]  # the two that move agree
    for x in (*values.values(), lp):
        x[:] = x[:, :1]
    found = pmg.summary(idata_of(values, lp), model)
    assert found.attrs["verdict"].startswith("Chains 0, 1, 2, 3 did not move")
    assert "agree" not in found.attrs["verdict"]
    assert found[["ess_bulk", "ess_tail"]].isna().all(axis=None)
    found = pmg.summary(idata_of({name: x[:1] for name, x in values.items()}), model)
    assert found.attrs["verdict"].startswith("Chain 0 did not move")

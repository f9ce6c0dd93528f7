import pickle
import re

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_gibbsnn as pmg
from pymc_gibbsnn.diagnostics.agreement import at_least, at_most, in_words
from pymc_gibbsnn.diagnostics.summary import _groups, _joined, _table
from pymc_gibbsnn.drivers.mixing import that_matter
from tests.helpers import autoregression

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
    assert re.fullmatch(
        r"All chains agree on the outputs: R-hat is at most 1\.0\d\d, and the smallest ESS is [\d,]+\.", found.verdict
    )
    assert found.chains_agree
    np.testing.assert_allclose(found.loc["lp", ["mean", "sd"]].astype(float), [-1000, 5], rtol=0.02)


def test_the_chain_that_is_elsewhere_is_named(network):
    model, values, lp = network
    values["W1"][2, :, :, 0] *= -1
    lp[2] -= 400
    found = pmg.summary(idata_of(values, lp), model, points=10)
    assert list(found["apart"]) == ["2", "", "", "2", ""]
    assert not found.chains_agree
    assert found.loc["output", "r_hat"] > 1.1
    assert found.loc["output", "between"] > 0.5
    assert re.fullmatch(
        r"Chain 2 disagrees with the others on the outputs: R-hat goes up to 1\.5\d\d, and the log density of chain "
        r"2 is \d+ below those of the others\.\nTry twice as many tuning steps; .*",
        found.verdict,
    )


def test_two_chains_disagree_with_each_other(network):
    model, values, lp = network
    values["W1"][1, :, :, 0] *= -1
    lp[1] += 30
    found = pmg.summary(idata_of({name: x[:2] for name, x in values.items()}, lp[:2]), model, points=10)
    assert re.match(
        r"The two chains disagree on the outputs: R-hat goes up to 1\.8\d\d, and the log density of chain 1 is \d+ "
        r"above that of the other\.\n",
        found.verdict,
    )
    values["W1"][3, :, :, 0] *= -1
    found = pmg.summary(idata_of(values), model, points=10)
    assert found.verdict.startswith("The 4 chains fall into 2 groups that disagree on the outputs: R-hat goes up to")
    assert found.loc["output", "apart"] == "0, 1, 2, 3"


def test_what_is_not_an_output_has_its_own_sentence(network):
    model, values, lp = network
    found = pmg.summary(idata_of(values, lp + 100 * np.arange(4)[:, None]), model, points=10)
    assert found.loc["lp", "apart"] == "0, 1, 2, 3"
    first, second = found.verdict.splitlines()
    assert first.startswith("All chains agree on the outputs")
    assert found.chains_agree  # on the outputs
    assert re.fullmatch(r"The chains disagree in lp \(R-hat up to 2\.\d\d\d\): do not interpret it\.", second)
    values["variance_y"] = np.exp(np.cumsum(np.random.default_rng(2).normal(size=lp.shape), axis=1) / 9)
    first, second = pmg.summary(idata_of(values, lp), model, points=10).verdict.splitlines()
    assert first.startswith("All chains agree on the outputs")
    assert re.fullmatch(
        r"Draw more before you interpret variance_y: the smallest ESS is \d+ and R-hat goes up to \d\.\d\d\d\.", second
    )


def test_a_summary_is_a_data_frame_that_shows_its_verdict(network):
    model, values, lp = network
    found = pmg.summary(idata_of(values, lp), model, points=10)
    assert found.attrs["verdict"] == found.verdict
    lines = str(found).splitlines()
    assert lines[0] == found.verdict
    assert lines[1] == ""
    assert lines[2].split() == list(found.columns)
    assert len(lines) == 3 + len(found)
    assert found._repr_html_().startswith(f"<p>{found.verdict}</p><div>")
    assert found["r_hat"].dtype == float
    assert type(found.loc[["output"]].round(2)) is pd.DataFrame
    again = pickle.loads(pickle.dumps(found))
    assert again.verdict == found.verdict
    pd.testing.assert_frame_equal(again, found)


def test_chains_that_are_not_finite_are_named_and_left_out(network):
    model, values, lp = network
    values["W1"][1, 300:] = np.nan
    found = pmg.summary(idata_of(values, lp), model, points=10)
    assert not found.chains_agree
    assert found.verdict.startswith("Chain 1 left the finite numbers: cut off the draws that are NaN or infinite")
    assert "\nAll chains agree on the outputs" in found.verdict
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
    found = pmg.summary(idata_of(few, lp[:, :30]), model, points=5)
    assert re.match(
        r"Draw more: the smallest ESS is 1\d\d for the outputs, and it should be 400 at least\.", found.verdict
    )
    assert "tuning steps" not in found.verdict
    assert found.chains_agree
    one = {name: x[:1] for name, x in values.items()}
    found = pmg.summary(idata_of(one), model, X[:3])
    assert found.loc["output", "numbers"] == 3
    assert found["r_hat"].isna().all()
    assert "lp" not in found.index
    assert found.chains_agree  # nothing speaks against it
    assert re.match(r"A single chain has none to agree with; the smallest ESS of the outputs is \d+\.", found.verdict)
    with pytest.raises(ValueError, match="at least 4 draws"):
        pmg.summary(idata_of({name: x[:, :3] for name, x in values.items()}), model)


def test_a_chain_that_left_the_finite_numbers_is_apart(network):
    model, values, _ = network
    values["W2"][1, 100:] = np.nan
    found = pmg.summary(idata_of(values), model, points=10)
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
    found = pmg.summary(idata_of(values, lp), model, points=10)
    assert found.attrs["verdict"].startswith("Chains 1, 2 did not move: all draws have the same outputs. ")
    assert "disagree" not in found.verdict  # the two that move agree
    assert not found.chains_agree
    for x in (*values.values(), lp):
        x[:] = x[:, :1]
    found = pmg.summary(idata_of(values, lp), model, points=10)
    assert found.attrs["verdict"].startswith("Chains 0, 1, 2, 3 did not move")
    assert "agree" not in found.attrs["verdict"]
    assert found[["ess_bulk", "ess_tail"]].isna().all(axis=None)
    found = pmg.summary(idata_of({name: x[:1] for name, x in values.items()}), model)
    assert found.attrs["verdict"].startswith("Chain 0 did not move")


@pytest.mark.parametrize("seed", range(8))
def test_sentences_never_contradict_the_numbers(seed):
    """Chains of any correlation, some of them elsewhere, wider or drifting, in rows that are judged and in others."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        chains, draws = int(rng.choice([1, 2, 3, 4, 8, 16])), int(rng.choice([20, 100, 400]))
        found = {}
        for name, numbers in (("output", 3), ("lp", 1), ("variance_y", 1)):
            rho = 1 - 10 ** rng.uniform(-2, 0)
            x = np.array([[autoregression(rng, rho, draws) for _ in range(numbers)] for _ in range(chains)])
            is_other = rng.random(chains) < rng.choice([0, 0, 0.3])
            x += (rng.choice([0.3, 1, 100]) * rng.normal(size=chains) * is_other)[:, None, None]
            x *= 1 + rng.choice([0, 0.2, 2]) * is_other[:, None, None]
            found[name] = np.moveaxis(x, 1, 2)
        check_words(found)


def check_words(found):
    """Read the numbers and the claims of the sentences, and compare them with the table."""
    joined = {name: _joined(x) for name, x in found.items()}
    names = [str(i) for i in range(len(found["output"]))]
    table, groups = _table(found, joined, names), _groups(joined["output"])
    first, *others = in_words(table, ["output"], names, groups, found["lp"][..., 0])
    everything = " ".join([first, *others])
    output, rest = table.loc["output"], table.drop(index="output")
    r_hats = [float(x) for x in re.findall(r"R-hat [a-z ]+ (\d[\d,]*\.\d+)", first.replace(",", ""))]
    sizes = [int(x) for x in re.findall(r"ESS [a-z ]+ (\d+)", first.replace(",", ""))]
    assert all(0 <= x - output["r_hat"] < 0.001 + 1e-9 for x in r_hats)
    assert all(0 <= output["ess_bulk"] - x < 1 for x in sizes)
    agrees, disagrees = "All chains agree" in first, "disagree" in first or "do not agree" in first
    too_few = first.startswith("Draw more")
    assert agrees + disagrees + too_few + first.startswith("A single chain") == 1
    if agrees:
        assert (r_hats[0], sizes[0]) == (min(r_hats[0], 1.05), max(sizes[0], 400))
        assert output["apart"] == ""
    if too_few:
        assert sizes[0] < 400
        assert not output["r_hat"] > 1.05
    if "do not agree yet" in first:
        assert r_hats[0] > 1.05
        assert output["apart"] == ""
        assert ("400 at least" in first) == (sizes != []) == bool(output["ess_bulk"] < 400)
    elif disagrees:
        assert output["apart"] != ""
        assert all(x > 1.05 for x in r_hats)
        assert "Draw more" not in everything
        for chain in re.findall(r"Chains? ([\d, ]+) disagree", first):
            assert chain == output["apart"]
    assert "is 0 " not in everything
    assert everything.count("Draw more") <= 1
    assert len(others) <= 1
    for words in others if agrees or too_few else []:
        [row, *_] = [name for name in rest.index if name in words]
        assert rest.loc[row, "apart"] != "" or rest.loc[row, "r_hat"] > 1.05 or rest.loc[row, "ess_bulk"] < 400


def test_numbers_are_rounded_to_the_worse_side():
    """What is written never stands on the other side of a bound than the number itself."""
    for bound in (1.01, 1.05, 1.1):
        below, above = np.nextafter(bound, 1), np.nextafter(bound, 2)
        assert float(at_most(below)) <= bound < float(at_most(above))
    assert (at_most(1.0111), at_most(2.6781)) == ("1.012", "2.679")
    assert (at_least(399.99), at_least(400.0), at_least(1234.5)) == ("399", "400", "1,234")


def labels(kind, shift):
    """A noisy network for labels, and chains whose outputs have different shifts for all classes together."""
    rng = np.random.default_rng(3)
    y = np.arange(40) % kind
    with pmg.mlp(X[:40], y, 3, noise=0.5, prior=None, likelihood="probit") as model:
        pass
    centre = {"W1": rng.normal(size=(3, 2)), "b1": rng.normal(size=3)}
    found = {name: w + 0.1 * rng.normal(size=(4, 200, *w.shape)) for name, w in centre.items()}
    rows = (kind,) if kind > 2 else ()
    found["W2"] = rng.normal(size=(*rows, 3)) + 0.1 * rng.normal(size=(4, 200, *rows, 3))
    found["b2"] = np.zeros((4, 200, *rows)) + shift * np.arange(4).reshape(4, 1, *[1] * len(rows))
    return model, found


def test_labels_are_judged_by_probabilities():
    """A number that is added to the outputs of all classes changes no label, nor probability."""
    model, values = labels(3, 2.0)
    assert az.rhat(pmg.function_space(idata_of(values), model)[["output"]])["output"].max() > 1.5
    found = pmg.summary(idata_of(values), model, points=10)
    assert list(found.index[:2]) == ["probability", "norm 1"]
    assert found.verdict.startswith("All chains agree on the probabilities: R-hat is at most 1.0")
    assert found.loc["probability", "mean"] == pytest.approx(1 / 3, abs=0.1)
    model, values = labels(2, 2.0)  # by the sign of one output, where it does change them
    assert "disagree on the probabilities" in pmg.summary(idata_of(values), model, points=10).verdict


def test_outputs_below_a_softmax_are_judged_less_their_mean():
    """A number that is added to the outputs of all classes changes no probability."""
    _, values = labels(3, 2.0)
    y = np.arange(40) % 3
    with pmg.mlp(X[:40], y, 3, noise=0.5, prior=None, likelihood="categorical") as model:
        pass
    assert az.rhat(pmg.function_space(idata_of(values), model)[["output"]])["output"].max() > 1.5
    found = pmg.summary(idata_of(values), model, points=10)
    assert found.chains_agree
    assert found.verdict.startswith("All chains agree on the outputs: R-hat is at most 1.0")
    assert found.loc["output", "mean"] == pytest.approx(0, abs=1e-9)
    values["b2"][3, :, 0] += 2  # of one class
    assert not pmg.summary(idata_of(values), model, points=10).chains_agree


def test_probabilities_of_classical_networks_are_called_so():
    rng = np.random.default_rng(4)
    with pmg.classical_mlp(X[:20], np.arange(20) % 2, 2, likelihood="bernoulli") as model:
        values = {name: rng.normal(size=(2, 50, *x.shape)) for name, x in model.initial_point().items()}
    found = pmg.summary(idata_of(values), model, points=5)
    assert found.index[0] == "probability"
    assert 0 < found.loc["probability", "mean"] < 1


def test_probabilities_that_hardly_change_are_left_out():
    x = np.random.default_rng(5).normal(size=(2, 100, 3)) * [0.2, 0.001, 0]
    assert that_matter("probability", x).shape[-1] == 1
    assert that_matter("probability", x[..., 1:]).shape[-1] == 2
    assert that_matter("output", x).shape[-1] == 3


@pytest.mark.parametrize(("sd", "noise", "said"), [(0.8, 0.1, True), (0.1, 0.1, False), (0.1, 0.3, True)])
@pytest.mark.parametrize("noisy", [True, False])
def test_a_fixed_noise_that_residuals_contradict_is_named(sd, noise, said, noisy):
    """By exact draws of a linear posterior; a noisy network of one linear layer is the same model."""
    rng = np.random.default_rng(6)
    features, truth = rng.normal(size=(60, 20)), rng.normal(size=20)
    y = features @ truth / 20**0.5 + sd * rng.normal(size=60)
    if noisy:
        model = pmg.mlp(features, y, (), noise=noise, prior=None, bias=False)
        [name] = [rv.name for rv in model.free_RVs]
    else:
        name = "beta"
        with pm.Model() as model:
            beta = pm.Normal(name, 0, 20**-0.5, shape=20)
            pm.Normal("y", pm.math.dot(pm.Data("X", features), beta), noise, observed=y)
    precision = 20 * np.eye(20) + features.T @ features / noise**2
    root = np.linalg.cholesky(np.linalg.inv(precision))
    draws = np.linalg.solve(precision, features.T @ y / noise**2) + rng.normal(size=(4, 250, 20)) @ root.T
    lines = pmg.summary(idata_of({name: draws}), model, points=30).verdict.splitlines()
    assert lines[0].startswith("All chains agree")
    found = re.search(r"noise of 'y' is fixed at a standard deviation of ([\d.]+), but .* one of ([\d.]+):", lines[-1])
    assert bool(found) == said
    if said:
        assert float(found[1]) == noise
        assert float(found[2]) == pytest.approx(sd, rel=0.25)

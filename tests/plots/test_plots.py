import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from pymc_gibbsnn.plots import (
    plot_acceptance,
    plot_class_probabilities,
    plot_log_density,
    plot_predictive_band,
    plot_rhat,
    plot_thermalisation,
)

rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_predictive_band_marks_what_lies_outside():
    samples, y = rng.normal(size=(2, 200, 10)), np.r_[np.zeros(9), 50.0]
    ax = plot_predictive_band(samples, y)
    inside, outside = (next(line for line in ax.lines if line.get_marker() == marker) for marker in ".x")
    assert len(inside.get_xdata()) == 9
    np.testing.assert_array_equal(outside.get_ydata(), [50.0])
    with pytest.raises(ValueError, match="samples must be"):
        plot_predictive_band(samples, y[:3])
    with pytest.raises(ValueError, match="probability"):
        plot_predictive_band(samples, y, probability=1.5)
    with pytest.raises(ValueError, match="y must not hold NaN; found 1 of 10"):
        plot_predictive_band(samples, np.where(y > 1, np.nan, y))


def test_log_density_shows_every_chain():
    idata = {"sample_stats": xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(3, 100)))})}
    trace, ranks = plot_log_density(idata)
    assert len(trace.lines) == 3
    assert len(ranks.patches) == 3
    assert sorted(text.get_text() for text in ranks.texts) == ["chain 0", "chain 1", "chain 2"]
    with pytest.raises(ValueError, match="no 'lp'"):
        plot_log_density({"sample_stats": xr.Dataset()})
    with pytest.raises(ValueError, match="at least 4 draws; found 3"):
        plot_log_density({"sample_stats": idata["sample_stats"].isel(draw=slice(3))})


def test_draws_that_are_not_finite_have_no_rank():
    lp = rng.normal(size=(3, 100))
    lp[1, 50:] = np.nan
    trace, ranks = plot_log_density({"sample_stats": xr.Dataset({"lp": (("chain", "draw"), lp)})})
    assert [patch.get_data().values.sum() for patch in ranks.patches] == [100, 50, 100]
    assert "chain 1, not finite" in {text.get_text() for text in ranks.texts}
    assert "of the finite chains" in trace.get_title()


def test_many_chains_have_no_labels():
    lp = xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(20, 10)))})
    assert not plot_log_density({"sample_stats": lp})[1].texts


def test_the_log_density_of_one_chain_is_compared_with_itself():
    trace, ranks = plot_log_density(
        {"sample_stats": xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(1, 101)))})}
    )
    assert [list(line.get_xdata()[[0, -1]]) for line in trace.lines] == [[0, 49], [50, 99]]
    assert {text.get_text() for text in ranks.texts} == {"first half", "second half"}


STARTS = ("zero", "prior 1", "prior 2")


def a_study(starts=STARTS, *, score=True):
    """What ``thermalisation`` returns, made up; the last chain thermalises by no method but R-hat."""
    draws, blocks, names = 100, 4, ["informed", *starts]
    none = [1.0, 5.0, np.nan][-len(starts) :]
    found = xr.Dataset(
        {
            "series": (("chain", "draw"), rng.uniform(1, 2, (len(names), draws))),
            "rhat": (("start", "block", "point"), rng.uniform(1, 4, (len(starts), blocks, 5))),
            "merge_time": ("start", none),
            "rhat_time": ("start", [25.0] * len(starts)),
            "stationarity_time": ("chain", [0.0, *none]),
        },
        coords={
            "chain": names,
            "start": list(starts),
            "draw": np.arange(1, draws + 1),
            "block": 25 * np.arange(blocks),
        },
    )
    if len(starts) > 1:
        found["rhat_uninformed"], found["rhat_time_uninformed"] = found["rhat"].mean("start"), 25.0
    if score:
        found["score"] = ("chain", "draw"), rng.normal(size=(len(names), draws))
        found["score_time"] = "chain", [0.0, *none]
    return found


def words(ax):
    return [text.get_text() for text in ax.texts]


def marks(ax):
    return [line for line in ax.lines if len(line.get_xdata()) == 1]


def test_thermalisation_has_a_panel_for_each_quantity():
    panels = plot_thermalisation(a_study()).get_figure().axes
    assert [ax.get_ylabel() for ax in panels] == ["test function", "R-hat\n(mean)", "score", "equilibrium\nsince"]
    assert all(ax.lines and ax.get_legend() is None for ax in panels)
    assert [ax.get_xlabel() for ax in panels] == ["", "", "", "sweep"]
    assert len({ax.get_xlim() for ax in panels}) == 1
    assert set(words(panels[0])) == {"informed", *STARTS}
    assert set(words(panels[1])) == {"uninformed", "1.2"}
    methods = [label.get_text() for label in panels[3].get_yticklabels()]
    assert methods == ["teacher-student", "R-hat", "stationarity", "score"]
    assert words(panels[3]) == ["none: prior 2"] * 3
    assert len(marks(panels[3])) == 7
    colours = {text.get_text(): text.get_color() for text in panels[0].texts}
    assert [mark.get_color() for mark in marks(panels[3])[:2]] == [colours["zero"], colours["prior 1"]]


def test_thermalisation_of_one_start_in_a_place_that_is_given():
    figure, (left, right) = plt.subplots(1, 2)
    assert plot_thermalisation(a_study(["zero"], score=False), ax=left) is left
    panels = [ax for ax in figure.axes if ax is not right]
    assert [ax.get_ylabel() for ax in panels] == ["test function", "R-hat\n(mean)", "equilibrium\nsince"]
    assert max(ax.get_position().x1 for ax in panels) < right.get_position().x0
    assert words(panels[2]) == ["none"] * 2
    free = plt.figure().add_axes((0.2, 0.2, 0.5, 0.5))
    plot_thermalisation(a_study(["zero"], score=False), ax=free)
    assert free.get_figure().axes[-1].get_position().y0 == pytest.approx(0.2)


@pytest.mark.parametrize("largest", [1.1, 4, 40, 4000])
def test_rhat_names_its_lines_beside_them(largest):
    found = a_study(["zero"])
    found["rhat"] = 1 + (found["rhat"] - 1) * (largest - 1) / 3
    ax = plot_rhat(found)
    assert ax.get_legend() is None
    assert sorted(words(ax)) == [f"{k}th percentile" for k in (25, 50, 75, 95)]
    heights = sorted(text.get_position()[1] for text in ax.texts)
    assert min(np.diff(heights)) > 0.03  # not one upon the other
    ax.get_figure().canvas.draw()
    low, high = ax.get_ylim()
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    assert 1 in ticks
    assert 2 <= len(ticks) <= 10


def acceptances(names):
    return {"sample_stats": xr.Dataset({name: (("chain", "draw"), rng.uniform(size=(2, 9))) for name in names})}


def shown(ax):
    return [label.get_text() for label in ax.get_xticklabels()]


def test_acceptance_has_no_empty_panel():
    layers = ["acceptance_rate", "acceptance_W10", "acceptance_W2", "lp"]  # PyMC's order is arbitrary
    [ax] = plot_acceptance(acceptances(layers))
    assert shown(ax) == ["W2", "W10"]
    assert ax.get_figure().axes == [ax]
    _, pair = plt.subplots(1, 2)
    [ax] = plot_acceptance(acceptances(layers), axes=pair)
    assert ax is pair[0]
    assert not pair[1].get_visible()
    axes = plot_acceptance(acceptances([*layers, "acceptance_W2_1", "acceptance_W2_0"]))
    assert [shown(ax) for ax in axes] == [["W2", "W10"], ["W2_0", "W2_1"]]
    axes = plot_acceptance(acceptances([*layers, *(f"acceptance_W2_{i}" for i in range(40))]))
    assert shown(axes[1]) == ["nodes of W2"]
    assert len(axes[1].patches) == 40
    with pytest.raises(ValueError, match="acceptance_W1"):
        plot_acceptance(acceptances(["lp"]))


@pytest.mark.parametrize(("points", "images", "lines"), [(2, False, 1), (6, True, 1), (12, True, 2), (13, False, 3)])
def test_class_probabilities_stand_six_side_by_side(points, images, lines):
    p, pictures = rng.dirichlet(np.ones(4), points), rng.uniform(size=(points, 3, 3))
    labels = p.argmin(1)  # not among the three that are shown
    axes = plot_class_probabilities(p, pictures if images else None, labels, names=list("abcd"))
    assert axes.shape == (1 + images, points)
    assert len({round(ax.get_position().y0, 3) for ax in axes[-1]}) == lines
    assert axes[0, 0].get_figure().get_figwidth() < 10
    assert [ax.get_title() for ax in axes[0]] == [f"point {i}\ntrue: {'abcd'[k]}" for i, k in enumerate(labels)]
    assert all(len(ax.patches) == 3 for ax in axes[-1])


def test_class_probabilities_without_labels():
    assert [ax.get_title() for ax in plot_class_probabilities(np.ones((2, 2)) / 2)[0]] == ["point 0", "point 1"]
    for wrong in (np.ones((2, 2)), [[1.5, -0.5]]):
        with pytest.raises(ValueError, match="add up to 1"):
            plot_class_probabilities(wrong)


@pytest.mark.parametrize("labels", [[0, -1], [0, 2], [0.7, 1.9], ["a", "b"]])
def test_labels_of_no_class_are_refused(labels):
    with pytest.raises(ValueError, match="labels must be integers from 0 to 1"):
        plot_class_probabilities(np.ones((2, 2)) / 2, labels=labels)


@pytest.mark.parametrize("names", [["two", "one", "zero"], [2, 1, 0]])
def test_names_of_classes_are_those_of_the_prediction(names):
    p = xr.DataArray([[0.2, 0.7, 0.1]], {"class": names}, ("point", "class"))
    [[ax]] = plot_class_probabilities(p, labels=[names[1]])
    assert ax.get_title() == f"point 0\ntrue: {names[1]}"
    assert [label.get_text() for label in ax.get_yticklabels()] == [str(names[k]) for k in (2, 0, 1)]
    assert ax.patches[2].get_facecolor() != ax.patches[1].get_facecolor() == ax.patches[0].get_facecolor()


@pytest.mark.parametrize("labels", [[1, 2], ["two", "three"]])
def test_labels_may_be_numbers_or_names_of_the_figure(labels):
    p = xr.DataArray(np.ones((2, 3)) / 3, {"class": [7, 8, 9]}, ("point", "class"))
    names = ["one", "two", "three"]
    for given in (p, p.values) if labels[0] == "two" else (p.values,):
        axes = plot_class_probabilities(given, labels=labels, names=names)
        assert [ax.get_title() for ax in axes[0]] == ["point 0\ntrue: two", "point 1\ntrue: three"]
    axes = plot_class_probabilities(p.values, labels=[1, 2], names=[1, 2, 3])
    assert axes[0, 0].get_title() == "point 0\ntrue: 2"


def test_classes_of_one_long_beginning_have_bars_of_their_own():
    names = [f"a class with a long name, {i}" for i in range(3)]
    [[ax]] = plot_class_probabilities([[0.2, 0.7, 0.1]], names=names)
    assert [patch.get_width() for patch in ax.patches] == [0.1, 0.2, 0.7]
    assert {label.get_text() for label in ax.get_yticklabels()} == {"a class with …"}

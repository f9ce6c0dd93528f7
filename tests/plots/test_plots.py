import numpy as np
import pytest
import xarray as xr

from pymc_gibbsnn.plots import plot_log_density, plot_predictive_band

rng = np.random.default_rng(0)


def test_predictive_band_marks_what_lies_outside():
    samples, y = rng.normal(size=(2, 200, 10)), np.r_[np.zeros(9), 50.0]
    ax = plot_predictive_band(samples, y)
    inside, outside = (line for line in ax.lines if line.get_marker() == ".")
    assert len(inside.get_xdata()) == 9
    np.testing.assert_array_equal(outside.get_ydata(), [50.0])
    with pytest.raises(ValueError, match="samples must be"):
        plot_predictive_band(samples, y[:3])
    with pytest.raises(ValueError, match="probability"):
        plot_predictive_band(samples, y, probability=1.5)


def test_log_density_shows_every_chain():
    idata = {"sample_stats": xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(3, 100)))})}
    trace, ranks = plot_log_density(idata)
    assert len(trace.lines) == 3
    assert len(ranks.patches) == 3
    with pytest.raises(ValueError, match="no 'lp'"):
        plot_log_density({"sample_stats": xr.Dataset()})

"""Each RandomVariable in each backend against its distribution function, tails included."""

import warnings
from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp

from pymc_gibbsnn.backends.draw import draw
from pymc_gibbsnn.networks.activations import ACTIVATIONS, PiecewiseLinear
from pymc_gibbsnn.networks.named_activations import SMOOTH
from pymc_gibbsnn.networks.smooth import Smooth
from pymc_gibbsnn.random.generalised_inverse_gaussian import generalised_inverse_gaussian
from pymc_gibbsnn.random.piecewise_normal import coupled_piecewise_normal, pieces, piecewise_normal
from pymc_gibbsnn.random.smooth_normal import CoupledSmoothNormalRV
from pymc_gibbsnn.random.truncated_normal import Interval, truncated_normal
from tests.helpers import MODES, compile_draw, draw_rv, slow, slow_but

N = 20_000
LEAST_P = 1e-4  # of a Kolmogorov-Smirnov test with a fixed seed

TABLES = ACTIVATIONS | {"table": PiecewiseLinear([-0.3, 0.4, 0.5], [0.5, -2.0, 0.0, 1.0], [0.1, 0.0, 1.0, -1.0])}

INTERVALS = [
    *((low, np.inf) for low in (0, 0.5, 5, 10, 40)),
    *((-np.inf, high) for high in (0, -5, -10, -40)),
    (-0.1, 0.3),
    (2.0, 2.1),
    (0.2, 9.0),
    (-3.0, 8.0),
    (-40.5, -40.0),
    (-np.inf, np.inf),
]


@pytest.mark.parametrize("mode", MODES)
def test_truncated_normal(mode):
    mean, sd = 0.7, 0.01
    lows, highs = np.array(INTERVALS).T[..., None]
    bounds = [np.repeat(mean + sd * bound, N, 1) for bound in (lows, highs)]
    draws = draw_rv(truncated_normal, [np.full((len(INTERVALS), N), mean), sd, *bounds], mode)
    assert np.isfinite(draws).all()
    for x, (low, high) in zip((draws - mean) / sd, INTERVALS, strict=True):
        assert low - 1e-9 <= x.min()
        assert x.max() <= high + 1e-9
        if low + high > 0:
            x, low, high = -x, -high, -low
        # the distribution function in the left tail, by differences of log Φ
        cdf = (
            np.expm1(log_ndtr(x) - log_ndtr(low)) / np.expm1(log_ndtr(high) - log_ndtr(low))
            if np.isfinite(low)
            else np.exp(log_ndtr(x) - log_ndtr(high))
        )
        assert stats.kstest(cdf, "uniform").pvalue > LEAST_P, (low, high)


def test_numba_does_not_look_for_a_draw_that_there_is_not():
    """Where the distribution is not defined, as after its mean was lost to rounding, no proposal is ever accepted."""
    nan, inf, zeros = np.nan, np.inf, np.zeros(5)
    mean, low = np.array([nan, inf, -inf, 0, 1.0]), np.array([0, 0, 0, nan, 0])
    x = draw_rv(truncated_normal, [mean, 0.1, low, zeros + inf], "NUMBA")
    assert np.isnan(x[:4]).all()
    assert x[4] > 0
    for sd, bound in ((inf, 0.0), (1e-170, 0.5)):
        assert np.isnan(draw_rv(truncated_normal, [zeros, sd, zeros + bound, zeros + inf], "NUMBA")).all()
    for table in (ACTIVATIONS["relu"], ACTIVATIONS["hard_tanh"]):
        lines = table.edges, table.slopes, table.intercepts
        z = draw_rv(piecewise_normal, [mean[:, None], [0.3], zeros[:, None], [1.0], *lines], "NUMBA")[:, 0]
        assert np.isnan(z[0])
        assert np.isfinite(z[3:]).all()


def density_on_grid(m, v, t, kappa, table):
    """(grid, distribution function) of the piecewise normal, by brute force on its pieces."""
    grid, density = [], []
    for low, high in zip(table.edges[:-1], table.edges[1:], strict=True):
        # a grid around the mode within the piece, where its Gaussian lives
        a, c = table.line((max(low, -1e9) + min(high, 1e9)) / 2)
        tau = 1 / v + kappa * a**2
        mean, sd = (m / v + a * (t - kappa * c)) / tau, tau**-0.5
        mode = np.clip(mean, low, high)
        width = min(12 * sd, 60 * sd**2 / max(abs(mode - mean), 1e-300)) if mode != mean else 12 * sd
        z = np.linspace(max(low, mode - width), min(high, mode + width), 20_001)
        s = a * z + c
        grid.append(z)
        density.append(-((z - m) ** 2) / (2 * v) + t * s - kappa * s**2 / 2)
    top = max(d.max() for d in density)
    mass = [integrate.cumulative_simpson(np.exp(d - top), x=z, initial=0) for z, d in zip(grid, density, strict=True)]
    starts = np.cumsum([0, *(x[-1] for x in mass)])
    cdf = np.concatenate([x + start for x, start in zip(mass, starts[:-1], strict=True)]) / starts[-1]
    return np.concatenate(grid), cdf


QUICK = {*product(TABLES, ["AS_WRITTEN", "NUMBA"]), ("relu", "JAX")}


@pytest.mark.parametrize(("name", "mode"), slow_but(QUICK, product(TABLES, MODES)))
def test_piecewise_normal(name, mode):
    table = TABLES[name]
    cases = [
        (m, v, s, delta)
        for v, delta in ((0.3, 0.5), (1e-4, 1e-4), (1e-4, 1e-2))
        for m in (-0.01, 0.3, -2.0)
        for s in (-1.0, 0.02)
    ]
    cases = [case for case in cases if case[1] == 0.3] if mode == "JAX" else cases
    for i, (m, v, a, delta) in enumerate(cases):
        kappa, t = 1 / delta, a / delta
        z = draw_rv(
            piecewise_normal,
            [
                np.full((5 * N, 1), m),
                [v],
                np.full((5 * N, 1), t),
                [kappa],
                table.edges,
                table.slopes,
                table.intercepts,
            ],
            mode,
            seed=i,
        )[:, 0]
        grid, cdf = density_on_grid(m, v, t, kappa, table)
        found = stats.kstest(z, lambda x, g=grid, c=cdf: np.interp(x, g, c), method="asymp")
        assert found.pvalue > LEAST_P, (m, v, a, delta)


@pytest.mark.parametrize("mode", MODES)
def test_samples_far_from_the_edge_beside_others(mode):
    """Without data z is N(m, v), for samples that both pieces share and for those that one has to itself."""
    table, v = TABLES["relu"], 1e-2
    m = np.random.default_rng(0).choice([-3.0, -0.05, 0.0, 0.1, 2.0], size=(2 * N, 1))
    z = draw_rv(
        piecewise_normal, [m, [v], np.zeros_like(m), [0.0], table.edges, table.slopes, table.intercepts], mode, seed=1
    )
    assert stats.kstest((z - m)[:, 0] / v**0.5, stats.norm.cdf).pvalue > LEAST_P


@pytest.mark.parametrize(("dtype", "n"), [("float64", 2**22), slow("float32", 2**23)])
def test_uniforms_at_both_ends_give_finite_draws(dtype, n):
    """The least and the greatest uniform number, inverted in JAX and in SciPy, stay in the interval and are finite."""
    import jax
    import jax.numpy as jnp

    from pymc_gibbsnn.random import _jax

    with jax.enable_x64(dtype == "float64"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
        u = np.asarray(_jax.open_uniform(jax.random.key(0), (n,), "float64"))
        assert u.dtype == dtype
        step = np.finfo(dtype).epsneg
        assert step <= u.min() < 1e-6 < 1 - 1e-6 < u.max() <= 1 - step
        for low, high in INTERVALS:
            ends = np.array([step, 1 - step], dtype)
            low, high = (np.full(2, x, dtype) for x in (low, high))
            for x in (
                Interval.between(low, high, np, log_ndtr).invert(ends, np, ndtri_exp),
                Interval.between(low, high, jnp, _jax.log_ndtr).invert(ends, jnp, _jax.ndtri_exp),
            ):
                assert np.isfinite(x).all()
                assert (low <= x).all()
                assert (x <= high).all()


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-11), slow("float32", 1e-6)])
def test_special_functions_of_jax_are_those_of_scipy(dtype, rtol):
    import jax

    from pymc_gibbsnn.random import _jax

    with jax.enable_x64(dtype == "float64"):
        x = np.r_[np.linspace(-60, 10, 10_001), -np.logspace(2, 6, 100), 0, np.inf].astype(dtype)
        np.testing.assert_allclose(_jax.log_ndtr(x), log_ndtr(x), rtol, rtol)
        assert _jax.log_ndtr(np.asarray([-np.inf], dtype)) == -np.inf
        x = np.r_[np.linspace(-8, 30, 10_001), np.logspace(2, 8, 100), np.inf].astype(dtype)
        np.testing.assert_allclose(_jax.erfcx(x), erfcx(x), 10 * rtol)
        y = -np.logspace(np.log10(np.finfo(dtype).epsneg), 4, 10_001).astype(dtype)
        x = _jax.ndtri_exp(y)
        left = y < np.log(0.5)
        np.testing.assert_allclose(x[left], ndtri_exp(y[left]), rtol, rtol)
        np.testing.assert_allclose(ndtr(x[~left]), np.exp(y[~left]), atol=8 * np.finfo(dtype).epsneg)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TABLES)
def test_masses_of_pieces_on_a_grid(name, dtype):
    """Oracle 4: m and a to 50 standard deviations, variances down to 1e-8, no NaN in float32, quadrature in float64."""
    table = TABLES[name]
    for v in (1.0, 1e-4, 1e-8):
        sd = np.sqrt(v)
        m, a = (x.ravel().astype(dtype) for x in np.meshgrid(*2 * [sd * np.linspace(-50, 50, 11)]))
        edges, slopes, intercepts = (x.astype(dtype) for x in (table.edges, table.slopes, table.intercepts))
        v_ = np.asarray(v, dtype)
        parts = pieces(m, v_, a / v_, 1 / v_, edges, slopes, intercepts, np, lambda x: log_ndtr(x).astype(dtype))
        log_mass = np.stack([part.log_mass for part in parts], -1)
        log_mass = log_mass - log_mass.max(-1, keepdims=True)
        assert not np.isnan(log_mass).any()
        if dtype == "float64":
            for i in range(0, len(m), 7):
                grid, cdf = density_on_grid(m[i], v, a[i] / v, 1 / v, table)
                expected = np.diff(np.interp(table.edges, grid, cdf))
                mass = np.exp(log_mass[i]) / np.exp(log_mass[i]).sum()
                np.testing.assert_allclose(mass, expected, atol=2e-6)


@pytest.mark.parametrize("mode", ["AS_WRITTEN", slow("NUMBA"), slow("JAX")])
def test_coupled_piecewise_normal_leaves_its_target(mode):
    """Long from any start, two units of many independent samples follow the joint density, by brute force on a grid."""
    table, v, delta = ACTIVATIONS["relu"], 0.5, 0.2
    w = np.array([[1.0, -0.7], [0.4, 0.9]])
    m, y = np.array([0.3, -0.2]), np.array([0.5, 0.8])
    g = w / delta
    z = np.zeros((4000, 2))
    parameters = [np.tile(m, (4000, 1)), v, np.tile(y, (4000, 1)), w, g, table.edges, table.slopes, table.intercepts]
    for sweep in range(12):
        z = draw_rv(coupled_piecewise_normal, [z, *parameters], mode, seed=sweep)
    axis = np.linspace(-4, 4, 801)
    z1, z2 = np.meshgrid(axis, axis, indexing="ij")
    s = np.stack([table(z1), table(z2)], -1)
    log_p = -((z1 - m[0]) ** 2 + (z2 - m[1]) ** 2) / (2 * v) - ((y - s @ w.T) ** 2).sum(-1) / (2 * delta)
    p = np.exp(log_p - log_p.max())
    for unit, marginal in enumerate([p.sum(1), p.sum(0)]):
        cdf = np.cumsum(marginal) - marginal / 2
        assert stats.kstest(z[:, unit], lambda x, c=cdf: np.interp(x, axis, c / c[-1])).pvalue > LEAST_P
    found, expected = np.mean(table(z[:, 0]) * table(z[:, 1])), (p * s[..., 0] * s[..., 1]).sum() / p.sum()
    assert abs(found - expected) < 5 * np.std(table(z[:, 0]) * table(z[:, 1])) / np.sqrt(len(z))


@pytest.mark.parametrize("function", [ACTIVATIONS["relu"], Smooth(SMOOTH["tanh"])], ids=["pieces", "smooth"])
def test_a_coupled_pass_is_that_of_one_unit_after_the_other(function):
    """With the same random numbers, the data of each unit less what the others say now."""
    if isinstance(function, PiecewiseLinear):
        op, table = coupled_piecewise_normal, function
    else:
        op, table = CoupledSmoothNormalRV(function), function.table
    random = np.random.default_rng(1)
    z, m = random.normal(size=(2, 50, 3))
    y, w = random.normal(size=(50, 2)), random.normal(size=(2, 3))
    g = w + 0.3 * (w @ w.T) @ w  # a positive definite matrix times W

    def draws(generator, units, y):
        given = m[:, units], 0.5, y, w[:, units], g[:, units]
        return op.rng_fn(generator, z[:, units], *given, table.edges, table.slopes, table.intercepts)

    whole, generator = draws(np.random.default_rng(2), [0, 1, 2], y), np.random.default_rng(2)
    for j in range(3):
        others = [k for k in range(3) if k != j]
        z[:, [j]] = draws(generator, [j], y - function(z[:, others]) @ w[:, others].T)
    np.testing.assert_allclose(whole, z, rtol=1e-9)


GIG = [
    (1.0, 2.0, 3.0),
    (-2.5, 1.0, 4.0),
    (0.0, 0.3, 0.2),
    (0.0, 1e-3, 1e-3),
    (2100.0, 3000.0, 1e-3),
    (1000.0, 5000.0, 2000.0),
    (-60.0, 3.0, 50.0),
    (0.1, 100.0, 100.0),
    (0.5, 1.0, 0.0),
    (-3.0, 0.0, 2.0),
]


@pytest.mark.parametrize("mode", MODES)
def test_generalised_inverse_gaussian(mode):
    p, a, b = (np.repeat(x[:, None], N, 1) for x in np.array(GIG).T)
    draws = draw_rv(generalised_inverse_gaussian, [p, a, b], mode)
    for x, (p, a, b) in zip(np.log(draws), GIG, strict=True):
        u = np.linspace(x.min() - 3 * x.std(), x.max() + 3 * x.std(), 200_001)
        log_density = p * u - (a * np.exp(u) + b * np.exp(-u)) / 2
        cdf = integrate.cumulative_simpson(np.exp(log_density - log_density.max()), x=u, initial=0)
        assert stats.kstest(x, lambda q, u=u, c=cdf: np.interp(q, u, c / c[-1])).pvalue > LEAST_P, (p, a, b)


def test_seeds_differ():
    draw = compile_draw(lambda rng: _pair(rng), "NUMBA")
    assert not np.allclose(draw(), draw())


def _pair(rng):
    import pytensor.tensor as pt

    return draw(truncated_normal, rng, pt.zeros(3), 1.0, pt.zeros(3), pt.ones(3))

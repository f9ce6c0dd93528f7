"""The distributions of SGLD, SGHMC, I-SGD and constant SGD on conjugate models, where they are known exactly."""

import copy

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_gibbsnn as pmg
from pymc_gibbsnn.samplers.full_gradient import full_gradient
from pymc_gibbsnn.targets.plain import PlainTarget
from tests.gaussian_models import run
from tests.helpers import PYTHON, check_mean, slow, value
from tests.stochastic_models import Means, Toy, logistic

MEANS = Means()


def sample(model, steps, draws, **kwargs):
    with model:
        return pmg.sample(draws, step=steps, chains=2, random_seed=1, progressbar=False, **{"tune": 0, **kwargs})


def check_variance(draws, mean, variance, name):
    """Of independent columns (chain, draw, column): their mean square is one series."""
    check_mean(((draws - mean) ** 2).mean(-1) / variance, 1, name, least_ess=50)


def unit_mass(step_size, friction, noise_estimate=0.0, **kwargs):
    return dict(step_size=step_size, friction=friction, noise_estimate=noise_estimate, preconditioned=False, **kwargs)


@pytest.mark.parametrize(
    ("langevin", "hamiltonian"),
    [
        slow([{"step_size": 8e-4, "temperature": 0.7}], [unit_mass(0.04, 0.2, MEANS.b / 3, temperature=0.7)]),
        pytest.param(
            [{"step_size": 8e-4}, {"step_size": 4e-4}, {"step_size": 4e-4, "temperature": 0.1}],
            [unit_mass(0.04, 0.2), unit_mass(0.02, 0.1), unit_mass(0.02, 0.2, MEANS.b)],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_langevin_and_hamiltonian_variances_are_those_of_the_recursion(langevin, hamiltonian):
    """Several steps in one program."""
    names = [f"theta_{i}" for i in range(len(langevin) + len(hamiltonian))]
    model = MEANS.model(names)
    samplers = [pmg.SGLD] * len(langevin) + [pmg.SGHMC] * len(hamiltonian)
    options = [*langevin, *hamiltonian]
    steps = [
        sampler([model[name]], model=model, start=None, **k)
        for sampler, name, k in zip(samplers, names, options, strict=True)
    ]
    initvals = dict.fromkeys(names, MEANS.mean)
    posterior = sample(model, steps, 1500, tune=100, thin=4, initvals=initvals)["posterior"]
    for sampler, name, k in zip(samplers, names, options, strict=True):
        temperature = k.get("temperature", 1)
        if sampler is pmg.SGLD:
            expected = MEANS.variance_of_langevin(k["step_size"], temperature)
        else:
            expected = MEANS.variance_of_hamiltonian(
                k["step_size"] ** 2, k["friction"], k["noise_estimate"], temperature
            )
        check_variance(posterior[name].values, MEANS.mean, expected, f"{sampler.__name__} {k}")


def test_the_order_at_which_errors_fall():
    """Of the recursions, which the chains above follow: as ε falls, variances tend to the posterior's. SGLD's error
    and, at friction A and with nothing known of the noise, SGHMC's fall as ε; where it is known, SGHMC's as ε².
    """
    sizes = np.array([4e-3, 2e-3, 1e-3]) / 10

    def slope(variances, sizes=sizes):
        errors = np.array(variances) * MEANS.curvature - 1
        return np.log(errors[1:] / errors[:-1]) / np.log(sizes[1:] / sizes[:-1])

    np.testing.assert_allclose(slope([MEANS.variance_of_langevin(e) for e in sizes]), 1, atol=0.05)
    sizes = np.array([0.02, 0.01, 0.005])
    at_friction_5 = [MEANS.variance_of_hamiltonian(e**2, 5 * e, 0) for e in sizes]
    np.testing.assert_allclose(slope(at_friction_5, sizes), 1, atol=0.05)
    where_known = [MEANS.variance_of_hamiltonian(e**2, 5 * e, MEANS.b) for e in sizes]
    np.testing.assert_allclose(slope(where_known, sizes), 2, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["langevin", "hamiltonian"])
def test_the_order_at_which_the_errors_of_chains_fall(kind):
    """Slopes of measured errors against the step size."""
    sizes = {"langevin": [8e-4, 4e-4, 2e-4], "hamiltonian": [0.04, 0.02, 0.01]}[kind]
    names = [f"theta_{i}" for i in range(len(sizes))]
    means = Means(columns=2000)
    model = means.model(names)
    options = {
        "langevin": [{"step_size": e} for e in sizes],
        "hamiltonian": [unit_mass(e, 5 * e) for e in sizes],
    }[kind]
    sampler = pmg.SGLD if kind == "langevin" else pmg.SGHMC
    steps = [sampler([model[n]], model=model, start=None, **k) for n, k in zip(names, options, strict=True)]
    initvals = dict.fromkeys(names, means.mean)
    posterior = sample(model, steps, 3000, tune=300, thin=4, initvals=initvals)["posterior"]
    errors = [float(((posterior[n].values - means.mean) ** 2).mean()) * means.curvature - 1 for n in names]
    slopes = np.diff(np.log(errors)) / np.diff(np.log(sizes))
    np.testing.assert_allclose(slopes, 1, atol=0.15)


# The textbook's algorithms in plain NumPy

X = np.array([0.5, 1.0, 1.5, 2.0, 1.0, 3.0])
Y = np.array([1, 1, 1, 1, 0, 1])


def slope(theta, rows):
    """Of −log π of 300 slopes θ on a batch, y ~ Bernoulli(sigmoid(θ x))."""
    residual = Y[rows][:, None] - 1 / (1 + np.exp(-np.multiply.outer(X[rows], theta)))
    return theta - len(X) / len(rows) * (X[rows][:, None] * residual).sum(0)


def textbook(rng, method, theta, steps, P=1.0, cycle=None, fitted=None, size=2):
    """θ after each step of SGLD with ε = 0.2, or of SGHMC with ε = 0.4, A = 1 and B̂ = 0.3.

    Scales P are those of RMSprop [Li et al. 2016] or a mass 1/P. In a cycle [Zhang et al. 2020, for both] the first
    half has no noise. At a fitted point the gradient on all rows is known [Baker et al. 2019].
    """
    v = np.zeros_like(theta)
    for k in range(steps):
        rows = rng.integers(len(X), size=size)
        g = slope(theta, rows)
        if fitted is not None:
            g = slope(fitted, np.arange(len(X))) + g - slope(fitted, rows)
        n = rng.normal(size=len(theta))
        r = k % cycle / cycle if cycle else 0
        share, noisy = (np.cos(np.pi * r) + 1) / 2, r >= 0.5 or not cycle
        if method == "sgld":
            epsilon = 0.2 * share
            theta = theta - epsilon * P * g + noisy * np.sqrt(2 * epsilon * P) * n
        else:  # of the velocity v = ε r, with the learning rate ε² and the friction ε A of a step, as in its section 4
            eta, alpha, beta = 0.4**2 * share * P, 0.4 * 1.0, 0.4 * 0.3 * share * P
            v = (1 - alpha) * v - eta * g + noisy * np.sqrt(2 * eta * (alpha - beta)) * n
            theta = theta + v
        yield theta


@pytest.mark.parametrize(
    ("method", "sampler", "options"),
    [("sgld", pmg.SGLD, {"step_size": 0.2}), ("sghmc", pmg.SGHMC, unit_mass(0.4, 0.4 * 1.0, 0.3 / 0.4))],
)
@pytest.mark.parametrize("variant", ["plain", "scaled, in cycles", "with control variates"])
def test_sgld_and_sghmc_are_the_textbooks_on_a_skewed_target(method, sampler, options, variant):
    """The same draws from the same random numbers, and so the same distribution."""
    P, cycle, fitted = 1.0, None, None
    if variant == "scaled, in cycles":
        P, cycle = np.linspace(0.4, 1.4, 300), 8
        options = {**options, "preconditioned": True, "cycle": cycle}
    elif variant == "with control variates":
        fitted = np.linspace(0, 1.5, 300)
        options = {**options, "control_variates": {"theta": fitted}}
    step = sampler(model=logistic(X, Y, 2, 300), start=None, compile_kwargs=PYTHON, rng=1, **options)
    step.tune = False
    if cycle:
        step.carry |= {"preconditioner_now_theta": P, "gradients_seen": np.array(2.0)}
    theirs = list(textbook(copy.deepcopy(step.rng), method, np.zeros(300), 100, P, cycle, fitted))
    draws, stats = run(step, 100)
    np.testing.assert_allclose(draws["theta"], theirs, rtol=1e-7, atol=1e-9)
    assert np.isfinite(stats["lp"]).all()


# What is learned


@pytest.mark.slow
def test_what_is_learned_and_the_distributions_that_follow():
    """All four as they are called, one after the other in one program: the noise they learn is the noise there is."""
    names = ["sgld", "sghmc", "isgd", "constant"]
    model = MEANS.model(names)
    makers = [pmg.SGLD, pmg.SGHMC, pmg.ISGD, pmg.ConstantSGD]
    steps = [make([model[name]], model=model) for make, name in zip(makers, names, strict=True)]
    idata = sample(model, steps, 500, tune=1000, thin=10)
    posterior, stats = idata["posterior"], idata["sample_stats"]
    variance = {n: float(((posterior[n].values - MEANS.mean) ** 2).mean()) * MEANS.curvature for n in names}
    step_size = stats["step_size"].mean("draw")
    assert (0.4 * 0.2 / MEANS.top < step_size).all()
    assert (step_size < 1.5 * 0.2 / MEANS.top).all()
    assert 0.9 < variance["sgld"] < 1.15
    assert 0.9 < variance["sghmc"] < 1.1
    np.testing.assert_allclose(stats["kinetic_temperature"].mean(), 1, atol=0.1)
    # λ = max b, of 400 estimates from some 200 differences each
    assert (MEANS.b < stats["lambda_isgd"]).all()
    assert (stats["lambda_isgd"] < 3 * MEANS.b).all()
    h = 1 / float(stats["lambda_isgd"].mean())
    assert abs(variance["isgd"] * (1 - h * MEANS.curvature / 2) - 1) < 0.1
    # h = 1/b, or what is stable; nothing is injected
    most = min(1 / MEANS.b, MEANS.rows / MEANS.size / MEANS.top)
    assert (0.6 * most < stats["learning_rate"]).all()
    assert (stats["learning_rate"] < 1.2 * most).all()
    expected = MEANS.variance_of_langevin(float(stats["learning_rate"].mean()), injected=0.0)
    np.testing.assert_allclose(variance["constant"], expected * MEANS.curvature, rtol=0.15)


def test_the_scales_of_rmsprop_are_those_of_the_gradients():
    """P = sqrt(mean V/V): at the mean of the posterior V, the second moments of g, are the variances of its noise."""
    means, spread = Means(columns=4), np.array([1.0, 2.0, 4.0, 8.0])
    means.y = means.y * spread
    step = pmg.SGLD(model=means.model(), step_size=1e-12, preconditioned=True, start=None, compile_kwargs=PYTHON, rng=1)
    step.setup_chain(1, tune=1000, draws=0)
    run(step, 1000, {"theta": means.mean * spread})
    P = np.sqrt((spread**2).mean()) / spread
    np.testing.assert_allclose(step.carry["preconditioner_now_theta"], P, rtol=0.15)


TOY = Toy()


@pytest.mark.parametrize(
    "options",
    [
        slow({}),
        pytest.param({"noise": "gaussian"}, marks=pytest.mark.slow),
        pytest.param({"scheme": "B", "momentum": 0.0}, marks=pytest.mark.slow),
        pytest.param({"scheme": "C", "bound": "diagonal"}, marks=pytest.mark.slow),
        pytest.param({"rate": "single", "temperature": 0.5}, marks=pytest.mark.slow),
        pytest.param({"start": None}, marks=pytest.mark.slow),
    ],
)
def test_isgd_on_the_trigonometric_toy(options):
    """Oracle 15: variances are the exact ones times 1/(1 − hH/2), and as the recursion says with what was learned."""
    temperature = options.get("temperature", 1)
    step = pmg.ISGD(model=TOY.model(), **options)
    with step.model:
        idata = pmg.sample(6000, tune=2000, thin=10, step=step, chains=1, random_seed=1, progressbar=False)
    stats, w = idata["sample_stats"], idata["posterior"]["w"].values
    end = "" if options.get("rate") == "single" else "_w"
    lambda_, h, share = (float(stats[name + end].mean()) for name in ("lambda", "learning_rate", "noise_share"))
    np.testing.assert_allclose(h, temperature / lambda_)
    for i in range(TOY.features):
        check_mean(w[..., i], TOY.mean[i], f"mean of {i}")
    # The mean over coordinates, which are alike: b as it was learned is missing in what is injected, B is there.
    H = np.diag(TOY.curvature)
    B = np.diag(TOY.noise_covariance(TOY.covariance * temperature)).mean() / 2
    noise = 1 - share + B / lambda_
    check_mean(((w - TOY.mean) ** 2 * H * (1 - h * H / 2)).mean(-1) / temperature, noise, "variance")
    assert abs(noise - 1) < (0.2 if options.get("noise") != "gaussian" else 0.02)


def test_isgd_tends_to_the_posterior_as_batches_become_a_smaller_part_of_the_data():
    """Of the recursion with known b: h H is 2 N_b/N for a well-specified model."""
    ratios = []
    for rows in (100, 1000, 10_000):
        toy = Toy(rows=rows)
        b = np.diag(toy.noise_covariance(0 * toy.covariance)) / 2
        h = 1 / b.max()
        found = toy.covariance_of_langevin(np.full(4, h), 2 * (b.max() - b))
        ratios.append(np.diag(found) / np.diag(toy.covariance))
        hH = h * np.diag(toy.curvature)
        np.testing.assert_allclose(ratios[-1], 1 / (1 - hH / 2), rtol=6 * toy.features / rows)
        np.testing.assert_allclose(hH.max(), 2 * toy.size / rows, rtol=0.35)
    assert abs(ratios[-1] - 1).max() < 0.005 < abs(ratios[0] - 1).max()


def test_the_trajectory_is_that_of_the_mean_loss_too():
    """g and λ as here, or g/N and λ/N² with the rate 1/(N λ'), the paper's: from the same batches and noise."""
    toy = Toy()
    step = pmg.ISGD(model=toy.model(), compile_kwargs=PYTHON, rng=1)
    point, N = step.model.initial_point(), toy.rows
    for _ in range(60):
        point, _ = step.step(point)
    step.tune, w = False, point["w"]
    lambda_, b = 1 / step.carry["rate"][0] / N**2, step.carry["noise_now_w"] / N**2
    rng = copy.deepcopy(step.rng)
    for _ in range(5):
        point, [stats] = step.step(point)
        rows, n = rng.integers(N, size=toy.size), rng.normal(size=4)
        g = w / N + toy.phi[rows].T @ (toy.phi[rows] @ w - toy.y[rows]) / 0.1 / toy.size
        w = w - 1 / (N * lambda_) * (g + np.sqrt(2 * (lambda_ - b)) * n)
        np.testing.assert_allclose(point["w"], w)
        np.testing.assert_allclose([stats["lambda_w"], stats["clip_rate"]], [lambda_ * N**2, 0], atol=1e-12)


# Gradients


def test_the_gradient_on_all_rows_of_a_control_variate():
    """Batches that do not divide the data, too."""
    toy = Toy(rows=203)
    target, w = PlainTarget(toy.model()), np.arange(4.0)
    [found] = full_gradient(target, [pt.constant(w)])
    exact = -w - toy.phi.T @ (toy.phi @ w - toy.y) / 0.1
    np.testing.assert_allclose(value(found), exact)


@pytest.mark.parametrize("sampler", [pmg.SGLD, slow(pmg.SGHMC)])
def test_a_chain_may_start_where_the_gradient_is_zero(sampler):
    """From the first gradient, which is 0 at the mode, neither an eigenvalue nor a preconditioner can be learned."""
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Bernoulli("y", logit_p=b, observed=np.arange(200) % 2)
        with pytest.warns(UserWarning, match="the gradient is exact"):
            step = sampler(start=None)
    draws = sample(model, step, 1000, tune=1000, thin=5)["posterior"]["b"].values
    np.testing.assert_allclose(draws.std(), (1 + 200 / 4) ** -0.5, rtol=0.25)

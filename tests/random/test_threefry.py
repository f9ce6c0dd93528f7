"""The hash, by its known answers; and keys without loops, whose numbers are those of JAX's own keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pytensor.link.jax.dispatch.random import jax_sample_fn

from pymc_gibbsnn.backends.jax_backend import register_jax
from pymc_gibbsnn.random._threefry import KEYS, MOST, threefry
from pymc_gibbsnn.random.vectorised_gamma import vectorised_gamma
from tests.helpers import slow

MAX = 2**32 - 1


@pytest.mark.parametrize(
    ("keys", "counters", "rounds", "words"),
    [
        ((0, 0), (0, 0), 20, (0x6B200159, 0x99BA4EFE)),
        ((MAX, MAX), (MAX, MAX), 20, (0x1CB996FC, 0xBB002BE7)),
        ((0, 0), (0, 0), 13, (0x9D1C5EC6, 0x8BD50731)),
        ((MAX, MAX), (MAX, 0), 13, None),
    ],
)
def test_the_hash(keys, counters, rounds, words):
    """Known answers of Salmon et al.; and plain integers of Python."""
    arguments = [[jnp.uint32(x) for x in pair] for pair in (keys, counters)]
    found = tuple(int(x) for x in threefry(*arguments, rounds))
    assert found == _threefry_of_integers(*keys, *counters, rounds)
    assert words is None or found == words


def _threefry_of_integers(k0, k1, x0, x1, rounds):
    keys, words = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA), [(x0 + k0) % 2**32, (x1 + k1) % 2**32]
    for i, rotation in zip(range(rounds), 3 * (13, 15, 26, 6, 17, 29, 16, 24), strict=False):
        words[0] = sum(words) % 2**32
        words[1] = words[0] ^ (words[1] << rotation) % 2**32 ^ words[1] >> 32 - rotation
        if i % 4 == 3:
            number = i // 4 + 1
            words = [(words[j] + keys[(number + j) % 3] + j * number) % 2**32 for j in (0, 1)]
    return tuple(words)


DRAWS = {
    "split": lambda key: jax.random.key_data(jax.random.split(key, 3)),
    "split to a grid": lambda key: jax.random.key_data(jax.random.split(key, (2, 2))),
    "rows of a batch": lambda key: jax.random.randint(key, (128,), 0, 60_000),
    "one number": lambda key: jax.random.normal(key, ()),
    "an odd number": lambda key: jax.random.normal(key, (7, 3)),
    "none": lambda key: jax.random.uniform(key, (0,)),
    "bytes": lambda key: jax.random.bits(key, (5,), "uint8"),
    "many": lambda key: jax.random.uniform(key, (MOST + 1,)),
    "a loop of draws": lambda key: jax.lax.fori_loop(
        0, 3, lambda i, x: x + jax.random.uniform(jax.random.fold_in(key, i), (4,)), jnp.zeros(4)
    ),
    "folded": lambda key: jax.random.uniform(jax.random.fold_in(key, 3), (2,)),
}


@pytest.mark.parametrize(("double", "spread"), [slow(False, False), (True, True), slow(False, True), slow(True, False)])
def test_numbers_are_those_of_the_keys_of_jax(double, spread):
    data = np.array([[1, 2], [3, MAX], [0, 0]], np.uint32)

    def all_draws(key):
        return {name: draw(key) for name, draw in DRAWS.items()}

    with jax.enable_x64(double), jax.threefry_partitionable(spread):
        ours, theirs = (jax.random.wrap_key_data(data, impl=impl) for impl in (KEYS, "threefry2x32"))
        expected = jax.jit(jax.vmap(all_draws))(theirs)
        found, one_by_one = jax.jit(jax.vmap(all_draws))(ours), jax.jit(all_draws)
        for name, draws in expected.items():
            np.testing.assert_array_equal(found[name], draws, err_msg=name)
        not_compiled = [DRAWS["an odd number"](keys[0]) for keys in (ours, theirs)]
        np.testing.assert_array_equal(*not_compiled)
        for i, key in enumerate(ours):
            for name, draw in one_by_one(key).items():
                np.testing.assert_array_equal(draw, expected[name][i], err_msg=name)


def test_gamma_variables_are_drawn_all_at_once():
    """As with keys of JAX's own kind; jax.random.gamma alone would draw them one after the other."""
    register_jax()
    rv = vectorised_gamma(np.ones(5), 1.0)
    draw = jax_sample_fn(vectorised_gamma, rv.owner)

    def loops(draw, impl):
        key = jax.random.wrap_key_data(np.zeros(2, np.uint32), impl=impl)
        return jax.jit(draw).lower(key).as_text().count("stablehlo.while")

    def ours(key):
        return draw(key, (5,), "float32", np.ones(5, np.float32), np.float32(1))

    def plain(key):
        return jax.random.gamma(key, np.ones(5, np.float32), (5,), "float32")

    with jax.threefry_partitionable(False):
        assert loops(ours, KEYS) == loops(plain, "threefry2x32") != loops(plain, KEYS)
        keys = [jax.random.wrap_key_data(np.array([1, 2], np.uint32), impl=impl) for impl in (KEYS, "threefry2x32")]
        np.testing.assert_array_equal(ours(keys[0]), plain(keys[1]))


@pytest.mark.cpu
def test_few_numbers_are_drawn_without_a_loop():
    with jax.threefry_partitionable(False):
        key = jax.random.wrap_key_data(np.zeros(2, np.uint32), impl=KEYS)
        for count, loops in ((128, False), (MOST + 2, True)):
            program = jax.jit(lambda key, count=count: jax.random.normal(key, (count,), "float32")).lower(key)
            assert ("while" in program.as_text()) == loops

"""Transitions as one JAX program: a loop over draws, which runs chains one by one or side by side, on any devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from pytensor.graph.basic import Variable

from pymc_gibbsnn.backends.jax_backend import jax_settings, register_jax, xla_options
from pymc_gibbsnn.backends.machine import count_cores
from pymc_gibbsnn.backends.threads import blas, limited
from pymc_gibbsnn.drivers.jax_transition import JaxTransition, jaxify
from pymc_gibbsnn.drivers.placement import Placement, put
from pymc_gibbsnn.drivers.processes import fetch
from pymc_gibbsnn.drivers.results import Draws
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["Program"]

# How many draws, and how many bytes of them, may stay on the device until a call ends
MOST_A_CALL, BYTES_A_CALL = 1000, 2**24


def _for_each(function: Callable, keys: jax.Array, chains: Sequence[Any], others: Sequence[Any]) -> Any:
    """Apply a function to the arguments of each chain, along their first axes, and to others that all chains share.

    Parameters
    ----------
    function : callable
        ``function(*chain, *others)`` for one chain.
    keys : array, (chain, 2) or (2,)
        A key for each chain; a single key, without the first axis, is that of a chain whose arguments lack it, too.
    chains : sequence of tree of array, (chain, ...)
        The arguments of chains.
    others : sequence of tree of array
        The arguments that all chains share.
    """
    if keys.ndim == 1:
        return function(*chains, *others)
    return jax.vmap(function, in_axes=(0,) * len(chains) + (None,) * len(others))(*chains, *others)


def _factors_batches(program: str) -> bool:
    """Whether a program, given as text, calls LAPACK with a batch of matrices.

    On a CPU such a batch is divided among threads that all programs share, and each program waits for them, so that two
    programs that run at once can wait for each other for ever.
    """
    return re.search(r'@lapack_\w+\((?!.*num_batch_dims = "0")', program) is not None


class Program:
    """A program that makes draws for many chains, by the transitions of a model one after the other.

    On a CPU each chain is a call of its own, and as many calls run at once as there are cores. On a GPU, on several
    devices, and on a CPU if the program factors batches of matrices, one call moves all chains side by side.

    Parameters
    ----------
    transitions : list of Transition
        The transitions, which together move all variables.
    variables : list of Variable
        All value variables of the model.
    recorded : dict of str to Variable
        What is recorded, as expressions of value variables, by name.
    points : list of dict of str to array
        The values of value variables at which each chain starts.
    keys : array, (chains, 2)
        A key of JAX's random generator for each chain.
    placement : Placement
        How arrays are spread over devices.
    dtype : str
        "float64" or "float32", the precision of all numbers.
    constants : dict of str to float
        Statistics that are the same at every draw, by name.
    """

    def __init__(
        self,
        transitions: Sequence[Transition],
        *,
        variables: Sequence[Variable],
        recorded: dict[str, Variable],
        points: list[dict[str, np.ndarray]],
        keys: np.ndarray,
        placement: Placement,
        dtype: str,
        constants: dict[str, float],
    ):
        register_jax()
        self.placement, self.dtype, self.constants = placement, dtype, constants
        latents = {v.name for transition in transitions for v in transition.latents}
        shapes = {name: np.shape(x) for name, x in points[0].items()}
        shapes = {name: placement.whole(shape) if name in latents else shape for name, shape in shapes.items()}
        self.moves = [JaxTransition(transition, shapes, placement) for transition in transitions]
        self.names = [v.name for v in variables]
        self.recorded = list(recorded)
        self.record, record_data = jaxify(variables, list(recorded.values()), placement)

        chains = len(points)
        values = {name: np.stack([point[name] for point in points]) for name in self.names}
        changing = [{name: self._for_all(move.start[name], chains) for name in move.changing} for move in self.moves]
        fixed = [{k: x for k, x in move.start.items() if k not in move.changing} for move in self.moves]
        self.data = placement.put(self._cast((fixed, [move.data for move in self.moves], record_data)), chains=False)
        self.stats = [self._name(i, name) for i, move in enumerate(self.moves) for name in move.stats]
        start = self._cast((keys, values, changing))
        alone = placement.mesh.size == 1 and placement.mesh.devices.flat[0].platform == "cpu"
        self._start(start, chains if alone else 1)
        if len(self.chains) > 1 and _factors_batches(self.lowered.as_text()):
            self._start(start, 1)

    def _for_all(self, x: Any, chains: int) -> Any:
        """Repeat an array for all chains."""
        shape = (chains, *np.shape(x))
        if not isinstance(x, jax.Array):
            return np.broadcast_to(x, shape)
        place = self.placement.of(shape, chains=True, even=True)
        return jax.jit(lambda x: jnp.broadcast_to(x, shape), out_shardings=place)(x)

    def _start(self, start: tuple, batches: int) -> None:
        """Put the values with which chains start on the devices, in batches of chains, and trace the program of one."""
        self._place(start, batches)
        first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self.chains[0])
        drawn = jax.eval_shape(
            lambda chain, data: Draws(self._record(chain, data), self._zeros(self.stats, chain[0])), first, self.data
        )
        each = len(self.chains[0][0])  # chains in a batch
        drawn = jax.tree.map(lambda x: jax.ShapeDtypeStruct((each, *x.shape), x.dtype), drawn)
        self.sizes = {name: batches * x.size * x.dtype.itemsize for part in drawn for name, x in part.items()}
        # The program is the same whatever the number of draws, so that it is found again in a cache of compiled ones.
        self.capacity = max(1, min(MOST_A_CALL, BYTES_A_CALL // sum(self.sizes.values())))
        chains, draws, shared = PartitionSpec("chain"), PartitionSpec(None, "chain"), PartitionSpec()
        across = NamedSharding(self.placement.mesh, draws)
        self.buffers = [
            jax.tree.map(lambda x: put(np.zeros((self.capacity, *x.shape), x.dtype), across), drawn)
            for _ in self.chains
        ]
        # Each group of devices runs by itself, without waiting for the chains of the others.
        run = jax.shard_map(
            self._run,
            mesh=self.placement.mesh,
            axis_names={"chain"},
            in_specs=(chains, shared, draws, *[shared] * 4),
            out_specs=(chains, draws),
            check_vma=False,
        )
        places = jax.tree.map(lambda x: x.sharding, (self.chains[0], self.buffers[0]))
        call = jax.jit(run, donate_argnums=(0, 2), out_shardings=places)
        with jax_settings(rows_are_spread=self.placement.mesh.shape["row"] > 1):
            self.lowered = call.lower(self.chains[0], self.data, self.buffers[0], *[np.int32(0)] * 4)

    def _place(self, state: tuple, batches: int) -> None:
        """Put keys, values and the changing carry of all chains on the devices, in batches of chains."""
        if batches == 1:
            self.chains = [self.placement.put(state, chains=True)]
            return
        self.chains = [
            self.placement.put(jax.tree.map(lambda x, batch=batch: x[batch], state), chains=True)
            for batch in np.split(np.arange(len(state[0])), batches)
        ]

    @cached_property
    def compiled(self) -> Callable:
        """The program after XLA has compiled it."""
        platform = self.placement.mesh.devices.flat[0].platform
        return self.lowered.compile(compiler_options=xla_options(platform, self.lowered.as_text()))

    def _cast(self, tree: Any) -> Any:
        """Turn all real numbers in a tree of arrays into the precision of the program."""

        def cast(x):
            x = x if isinstance(x, jax.Array) else np.asarray(x)
            return x.astype(self.dtype) if x.dtype.kind == "f" else x

        return jax.tree.map(cast, tree)

    def _turn(self, chains, data, tuning, sweeps, is_first):
        """Let each transition make a turn of several sweeps, for all chains.

        Parameters
        ----------
        chains : tuple
            The key, the values and the changing entries of the carry of each chain, or without the axis of chains those
            of a single one.
        data : tuple
            The other entries of the carry, and the data of the transitions and of what is recorded.
        tuning : array, ()
            The share of the tuning that is still to come.
        sweeps : int
            How many sweeps a turn has.
        is_first : array of bool, ()
            Whether this is the first turn of tuning or of draws.

        Returns
        -------
        chains : tuple
        stats : dict of str to array, (chain,) or ()
        """
        (keys, values, changing), (fixed, datas, _) = chains, data
        changed, stats = [], {}
        for i, move in enumerate(self.moves):

            def run(name, chain, tuning=tuning, move=move, i=i):
                side_by_side = chain[0].ndim > 1
                *chain, new_stats = _for_each(partial(move, name), chain[0], chain, (fixed[i], datas[i], tuning))
                return *self.placement.constrain(chain, chains=side_by_side), new_stats

            chain = keys, values, changing[i]
            if "begin" in move.stages:

                def begin(*chain, run=run):
                    return run("begin", chain)[:3]

                if len(self.moves) > 1:
                    chain = begin(*chain)
                else:  # it is where it was at the end of its last turn: nothing else moves its variables
                    chain = jax.lax.cond(is_first, begin, lambda *chain: chain, *chain)

            def steps(*chain, run=run, move=move, tunes=False):
                """Make all steps of the turn, and return the statistics of the last one."""

                def step(_, loop):
                    *chain, new_stats = run("step", loop[:3])
                    return *(run("tune", chain)[:3] if tunes else chain), new_stats

                return jax.lax.fori_loop(0, sweeps, step, (*chain, self._zeros(move.stats, chain[0])))

            def tuned_steps(*chain, run=run):
                """Make all steps as well, of which none but the last one, in code of its own, computes statistics."""
                step = partial(run, "step", tuning=jnp.zeros((), self.dtype))  # a constant: XLA drops what asks for it
                return step(jax.lax.fori_loop(0, sweeps - 1, lambda _, chain: step(chain)[:3], chain))

            if "tune" in move.stages:  # what only tuning needs is not touched afterwards
                *chain, new_stats = jax.lax.cond(tuning > 0, partial(steps, tunes=True), tuned_steps, *chain)
            else:
                *chain, new_stats = steps(*chain)
            if "record" in move.stages:
                *chain, _ = run("record", chain)
            keys, values, new = chain
            changed.append(new)
            stats |= {self._name(i, name): x for name, x in new_stats.items()}
        return (keys, values, changed), stats

    def _zeros(self, names: Sequence[str], keys: jax.Array) -> dict[str, jax.Array]:
        """Return zeros for the statistics of these names, of the chains that have these keys, to begin with."""
        return {name: jnp.zeros(keys.shape[:-1], self.dtype) for name in names}

    def _name(self, i: int, name: str) -> str:
        """Name a statistic of transition i, with the number i if an earlier transition has a statistic of that name."""
        return f"{name}_{i}" if any(name in move.stats for move in self.moves[:i]) else name

    def _record(self, chains, data):
        """Compute what is recorded, for all chains."""
        values = [chains[1][name] for name in self.names]
        values = _for_each(lambda values, data: self.record(*values, *data), chains[0], (values,), (data[2],))
        return dict(zip(self.recorded, values, strict=True))

    def _run(self, chains, data, buffers, count, sweeps, first, tune):
        """Make draws and write them to buffers; this is the function that becomes the program.

        Parameters
        ----------
        chains, data : tuple
            As in :meth:`_turn`; a single chain has an axis, too.
        buffers : Draws
            They receive the draws, up to the capacity.
        count, sweeps, first, tune : int
            As in :meth:`run`.

        Returns
        -------
        chains, buffers
            After the draws.
        """
        data = self.placement.constrain(data, chains=False)
        # Of arrays with an axis of length 1, XLA would make a copy at every step.
        alone = len(chains[0]) == 1
        chains = jax.tree.map(lambda x: x[0], chains) if alone else chains

        def draw(i, loop):
            chains, buffers = loop
            share = 1 - (first + i).astype(self.dtype) / jnp.maximum(tune, 1)
            share = jnp.where(tune > 0, jnp.maximum(share, 0), 0).astype(self.dtype)
            # A single transition makes all sweeps in one turn; several transitions take turns at every sweep.
            turns, each = (1, sweeps) if len(self.moves) == 1 else (sweeps, 1)
            chains, stats = jax.lax.fori_loop(
                0,
                turns,
                lambda _, loop: self._turn(loop[0], data, share, each, first + i == 0),
                (chains, self._zeros(self.stats, chains[0])),
            )
            new = Draws(self._record(chains, data), stats)
            return chains, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), buffers, new)

        chains, buffers = jax.lax.fori_loop(0, count, draw, (chains, buffers))
        return jax.tree.map(lambda x: x[None], chains) if alone else chains, buffers

    def run(self, count: int, *, sweeps: int, first: int, tune: int) -> Draws:
        """Make draws, and return them on the host.

        Parameters
        ----------
        count : int
            How many draws to make.
        sweeps : int
            How many sweeps each draw has.
        first : int
            The number of the first of these draws.
        tune : int
            Draws with a smaller number than this are tuning steps.

        Returns
        -------
        Draws
        """
        call, numbers = self.compiled, [np.int32(x) for x in (count, sweeps, first, tune)]

        def run(batch: int) -> Draws:
            chains, buffers = self.chains[batch], self.buffers[batch]
            self.chains[batch], self.buffers[batch] = call(chains, self.data, buffers, *numbers)
            return jax.tree.map(lambda buffer: fetch(buffer, count), self.buffers[batch])

        if len(self.chains) == 1:  # in this thread, which knows the settings of JAX
            return self._join([run(0)])
        with limited(blas(), 1), ThreadPoolExecutor(count_cores()) as threads:
            return self._join(threads.map(run, range(len(self.chains))))

    def state(self) -> dict[str, np.ndarray]:
        """Return where all chains are, by name, as arrays (chain, ...) on the host, for :meth:`restore`.

        These are the keys of the random generator, the values of variables and the changing entries of the carry. The
        chains must not be inside a call of :meth:`run`.
        """
        batches = [jax.tree.map(fetch, chains) for chains in self.chains]
        keys, values, changing = jax.tree.map(lambda *parts: np.concatenate(parts), *batches)
        carry = {f"carry {i} {name}": x for i, entries in enumerate(changing) for name, x in entries.items()}
        return {"keys": keys} | {f"value {name}": x for name, x in values.items()} | carry

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Put all chains where they were when :meth:`state` returned this."""
        values = {name: state[f"value {name}"] for name in self.names}
        changing = [{name: state[f"carry {i} {name}"] for name in move.changing} for i, move in enumerate(self.moves)]
        self._place((state["keys"], values, changing), len(self.chains))

    def nothing(self) -> Draws:
        """Return no draws at all, which show the shapes and types that draws have."""
        return self._join(
            jax.tree.map(lambda buffer: np.zeros((0, *buffer.shape[1:]), buffer.dtype), buffers)
            for buffers in self.buffers
        )

    def _join(self, batches: Iterable[Draws]) -> Draws:
        """Put the draws of batches of chains together, and add the statistics that are the same at every draw."""
        first, *others = batches
        values, stats = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), first, *others) if others else first
        shape = next(iter(stats.values())).shape
        return Draws(values, stats | {name: np.full(shape, x) for name, x in self.constants.items()})

"""Transitions as one JAX program: a loop over draws, for chains one by one or side by side, on any devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from jax.sharding import NamedSharding, PartitionSpec
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.link.jax.dispatch import jax_funcify
from threadpoolctl import threadpool_limits

from pymc_gibbsnn.backends.jax_backend import jax_settings, register_jax, xla_options
from pymc_gibbsnn.backends.machine import count_cores
from pymc_gibbsnn.drivers.placement import Placement
from pymc_gibbsnn.networks.network import evaluate
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["Program", "jaxify"]

SMALL = 64  # numbers in a constant that may stay in the program
# Draws that stay on the device between two calls
MOST_A_CALL, BYTES_A_CALL = 1000, 2**27


def jaxify(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> tuple[Callable, list[np.ndarray]]:
    """(function, data) such that ``function(*inputs, *data)`` computes the outputs in JAX.

    ``data`` are the shared variables of the graph and its large constants: a program that contains them is slow to
    compile and cannot spread them over devices. Shared whole numbers, such as lengths of dimensions, stay: shapes must
    be known.
    """
    nodes = list(ancestors(outputs))
    shared = [node for node in nodes if isinstance(node, SharedVariable)]
    lengths = [node for node in shared if node.type.dtype.startswith("int") and node.type.ndim == 0]
    leaves = [node for node in shared if node not in lengths]
    leaves += [node for node in nodes if isinstance(node, Constant) and np.size(node.data) > SMALL]
    arguments = {leaf: leaf.type() for leaf in leaves}
    constants = {node: pt.constant(evaluate(node), dtype=node.dtype) for node in lengths}
    graph = FunctionGraph(
        [*inputs, *arguments.values()], clone_replace(outputs, arguments | constants, rebuild_strict=False), clone=True
    )
    get_mode("JAX").optimizer.rewrite(graph)
    return jax_funcify(graph), [evaluate(leaf) for leaf in leaves]


def _for_each(function: Callable, chains: Sequence[Any], others: Sequence[Any]) -> Any:
    """The function of some arguments of each chain, along their first axes, and of others that chains share.

    A single chain is spared vmap: its axis of length 1 can make XLA lay a batch of rows out by columns.
    """
    if {len(x) for x in jax.tree.leaves(chains)} == {1}:
        return jax.tree.map(lambda x: x[None], function(*jax.tree.map(lambda x: x[0], chains), *others))
    return jax.vmap(function, in_axes=(0,) * len(chains) + (None,) * len(others))(*chains, *others)


def _factors_batches(program: str) -> bool:
    """Whether a program, as text, hands LAPACK a batch of matrices.

    On a CPU such a batch is shared out to threads that all programs have in common, and waited for: two programs that
    run at once can wait for each other for ever.
    """
    return re.search(r'@lapack_\w+\((?!.*num_batch_dims = "0")', program) is not None


class _Move:
    """One transition of one chain, stage by stage."""

    def __init__(self, transition: Transition):
        graph = transition.graph()
        self.read, self.carry = [v.name for v in graph.values], list(graph.carry)
        self.stages, self.stats = graph.stages, transition.stats
        self.changing = list(dict.fromkeys(name for stage in self.stages.values() for name in stage.carry))
        self.functions, self.data = {}, {}
        for name, stage in self.stages.items():
            self.functions[name], self.data[name] = jaxify(graph.inputs, stage.outputs)
        self.start = transition.start()

    def __call__(self, name, key, values, changing, fixed, data, tuning):
        """(key, values, changing carry, statistics) after the stage of this name."""
        stage, carry = self.stages[name], fixed | changing
        arguments = [*(values[name] for name in self.read), *(carry[name] for name in self.carry)]
        outputs = iter(self.functions[name]({"jax_state": key}, *arguments, tuning, *data[name]))
        key = key if stage.rng is None else next(outputs)["jax_state"]
        values = values | {v.name: jnp.asarray(next(outputs), values[v.name].dtype) for v in stage.state}
        changing = changing | {name: jnp.asarray(next(outputs), changing[name].dtype) for name in stage.carry}
        return key, values, changing, {name: jnp.asarray(next(outputs), tuning.dtype) for name in stage.stats}


class Program:
    """Draws from the transitions of a model, one after the other, for many chains at once.

    On a CPU each chain is a call of its own, as many of them at once as there are cores. On a GPU, on several devices,
    and on a CPU if the program factors batches of matrices, one call moves all chains side by side.

    Parameters
    ----------
    transitions : list of Transition
    variables : list of Variable
        All value variables of the model.
    recorded : dict of str to Variable
        What is recorded, as expressions of value variables.
    points : list of dict
        Where each chain starts.
    keys : (chains, 2) array
        A key of JAX's generator for each chain.
    placement : Placement
    dtype : str
    """

    def __init__(
        self,
        transitions: Sequence[Transition],
        variables: Sequence[Variable],
        recorded: dict[str, Variable],
        points: list[dict[str, np.ndarray]],
        keys: np.ndarray,
        placement: Placement,
        dtype: str,
    ):
        register_jax()
        self.placement, self.dtype = placement, dtype
        self.moves = [_Move(transition) for transition in transitions]
        self.names = [v.name for v in variables]
        self.recorded = list(recorded)
        self.record, record_data = jaxify(variables, list(recorded.values()))

        chains = len(points)
        values = {name: np.stack([point[name] for point in points]) for name in self.names}
        changing = [
            {name: np.broadcast_to(move.start[name], (chains, *np.shape(move.start[name]))) for name in move.changing}
            for move in self.moves
        ]
        fixed = [{k: x for k, x in move.start.items() if k not in move.changing} for move in self.moves]
        self.data = placement.put(self._cast((fixed, [move.data for move in self.moves], record_data)), chains=False)
        self.stats = [self._name(i, name) for i, move in enumerate(self.moves) for name in move.stats]
        start = self._cast((keys, values, changing))
        alone = placement.mesh.size == 1 and placement.mesh.devices.flat[0].platform == "cpu"
        self._start(start, chains if alone else 1)
        if len(self.chains) > 1 and _factors_batches(self.lowered.as_text()):
            self._start(start, 1)

    def _start(self, start: tuple, batches: int) -> None:
        """Put what the chains start from on the devices, in batches, and trace the program of one."""
        batches = np.split(np.arange(len(start[0])), batches)
        self.chains = [
            self.placement.put(jax.tree.map(lambda x, batch=batch: x[batch], start), chains=True) for batch in batches
        ]
        drawn = jax.eval_shape(
            lambda chains, data: (self._record(chains, data), self._zeros(self.stats, chains[0])),
            self.chains[0],
            self.data,
        )
        self.sizes = {name: len(batches) * x.size * x.dtype.itemsize for part in drawn for name, x in part.items()}
        # The same program, whatever the number of draws: it can be found again in a cache of compiled ones.
        self.capacity = max(1, min(MOST_A_CALL, BYTES_A_CALL // sum(self.sizes.values())))
        chains, draws, shared = PartitionSpec("chain"), PartitionSpec(None, "chain"), PartitionSpec()
        across = NamedSharding(self.placement.mesh, draws)
        self.buffers = [
            jax.tree.map(lambda x: jax.device_put(np.zeros((self.capacity, *x.shape), x.dtype), across), drawn)
            for _ in batches
        ]
        # Each group of devices runs by itself: it need not wait for the others' chains.
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

    @cached_property
    def _call(self) -> Callable:
        """The compiled program."""
        platform = self.placement.mesh.devices.flat[0].platform
        return self.lowered.compile(compiler_options=xla_options(platform, self.lowered.as_text()))

    def _cast(self, tree: Any) -> Any:
        def cast(x):
            x = np.asarray(x)
            return x.astype(self.dtype) if x.dtype.kind == "f" else x

        return jax.tree.map(cast, tree)

    def _turn(self, chains, data, tuning, sweeps):
        """A turn of each transition, of some sweeps, for all chains: (chains, statistics)."""
        (keys, values, changing), (fixed, datas, _) = chains, data
        changed, stats = [], {}
        for i, move in enumerate(self.moves):

            def run(name, chain, move=move, i=i):
                *chain, found = _for_each(partial(move, name), chain, (fixed[i], datas[i], tuning))
                return *self.placement.constrain(chain, chains=True), found

            chain = keys, values, changing[i]
            if "begin" in move.stages:
                *chain, _ = run("begin", chain)
            nothing = self._zeros(move.stats, keys)
            *chain, found = jax.lax.fori_loop(
                0, sweeps, lambda _, loop, run=run: run("step", loop[:3]), (*chain, nothing)
            )
            if "record" in move.stages:
                *chain, _ = run("record", chain)
            keys, values, new = chain
            changed.append(new)
            stats |= {self._name(i, name): x for name, x in found.items()}
        return (keys, values, changed), stats

    def _zeros(self, names: Sequence[str], keys: jax.Array) -> dict[str, jax.Array]:
        """Statistics of these names before the first draw of the chains that have these keys."""
        return {name: jnp.zeros(len(keys), self.dtype) for name in names}

    def _name(self, i: int, name: str) -> str:
        """The name of a statistic: with the transition's number, where an earlier one has such a name."""
        return f"{name}_{i}" if any(name in move.stats for move in self.moves[:i]) else name

    def _record(self, chains, data):
        """What is recorded of all chains."""
        values = [chains[1][name] for name in self.names]
        values = _for_each(lambda values, data: self.record(*values, *data), (values,), (data[2],))
        return dict(zip(self.recorded, values, strict=True))

    def _run(self, chains, data, buffers, count, sweeps, first, tune):
        data = self.placement.constrain(data, chains=False)

        def draw(i, loop):
            chains, buffers = loop
            share = 1 - (first + i).astype(self.dtype) / jnp.maximum(tune, 1)
            share = jnp.where(tune > 0, jnp.maximum(share, 0), 0).astype(self.dtype)
            # A transition that is alone makes all sweeps in one turn; several take turns at every sweep.
            turns, each = (1, sweeps) if len(self.moves) == 1 else (sweeps, 1)
            chains, stats = jax.lax.fori_loop(
                0,
                turns,
                lambda _, loop: self._turn(loop[0], data, share, each),
                (chains, self._zeros(self.stats, chains[0])),
            )
            new = (self._record(chains, data), stats)
            return chains, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), buffers, new)

        return jax.lax.fori_loop(0, count, draw, (chains, buffers))

    def run(self, count: int, sweeps: int, first: int, tune: int) -> tuple[dict, dict]:
        """Recorded values and statistics of ``count`` draws of some sweeps each, (count, chains, ...), on the host.

        ``first`` is the number of the first of these draws; those before number ``tune`` tune.
        """
        call, numbers = self._call, [np.int32(x) for x in (count, sweeps, first, tune)]

        def run(batch: int) -> tuple[dict, dict]:
            chains, buffers = self.chains[batch], self.buffers[batch]
            self.chains[batch], self.buffers[batch] = call(chains, self.data, buffers, *numbers)
            return jax.tree.map(lambda buffer: np.asarray(buffer)[:count].copy(), self.buffers[batch])

        one_thread_each = threadpool_limits(1, "blas") if len(self.chains) > 1 else nullcontext()
        with one_thread_each, ThreadPoolExecutor(count_cores()) as threads:
            return self._join(threads.map(run, range(len(self.chains))))

    def nothing(self) -> tuple[dict, dict]:
        """Recorded values and statistics of no draw, for their shapes and types."""
        return self._join(
            jax.tree.map(lambda buffer: np.zeros((0, *buffer.shape[1:]), buffer.dtype), buffers)
            for buffers in self.buffers
        )

    @staticmethod
    def _join(batches: Iterable[tuple[dict, dict]]) -> tuple[dict, dict]:
        """What batches of chains have drawn."""
        return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *batches)

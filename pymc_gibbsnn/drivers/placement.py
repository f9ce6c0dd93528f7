"""How the arrays of a JAX program are spread over devices, by chains and by samples of the data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pymc_gibbsnn._arguments import describe
from pymc_gibbsnn.drivers.processes import all_say, one_of_many
from pymc_gibbsnn.networks.network import evaluate
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["Placement", "choose_placement", "put"]


@dataclass(frozen=True)
class Placement:
    """How arrays are spread over a grid of devices: chains over one of its axes, samples of the data over the other.

    Attributes
    ----------
    mesh : Mesh
        The grid of devices, with the axes "chain" and "row".
    rows : set of int
        Numbers of samples: an axis of an array with one of these lengths is spread over "row".
    parts : int
        How many processes have a part of the rows each, of the same length; 1 if each has all of them.
    """

    mesh: Mesh
    rows: frozenset[int]
    parts: int = 1

    @property
    def local_rows(self) -> bool:
        """Whether this process has only a part of the rows."""
        return self.parts > 1

    def check_recorded(self, draws: Mapping[str, np.ndarray]) -> None:
        """Refuse draws (draw, chain, ...) with an axis of rows, of which this process has only a part."""
        if self.local_rows and (long := [name for name, x in draws.items() if self.rows & {*x.shape[2:]}]):
            raise ValueError(
                f"local_rows=True records no variables with a row for each row of the data; found {long}: name others "
                f"in var_names=."
            )

    def whole(self, shape: tuple[int, ...], chains: bool = False) -> tuple[int, ...]:
        """Return the shape that an array of this process has with the rows of all processes."""
        rows = [i for i in range(len(shape)) if i >= chains and shape[i] * self.parts in self.rows][:1]
        return tuple(n * self.parts if i in rows else n for i, n in enumerate(shape))

    def length(self, n: np.ndarray) -> np.ndarray:
        """Return a length as it is with the rows of all processes; arrays of whole numbers are no lengths."""
        return n if np.ndim(n) else np.asarray(*self.whole((int(n),)))

    def of(self, shape: tuple[int, ...], chains: bool, even: bool) -> NamedSharding:
        """Return how an array of a shape is spread; ``chains`` says whether its first axis runs over chains.

        With ``even``, an axis whose length the number of devices does not divide is not spread. JAX asks for this of
        arguments of a program, but not inside it.
        """
        axes = ["chain"] * chains + [None] * (len(shape) - chains)
        for axis in range(chains, len(shape)):
            if shape[axis] in self.rows and not (even and shape[axis] % self.mesh.shape["row"]):
                axes[axis] = "row"
                break
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def put(self, tree: Any, chains: bool) -> Any:
        """Copy arrays of the host to the devices."""

        def place(x):
            if isinstance(x, jax.Array):
                return x
            shape = self.whole(np.shape(x), chains)
            sharding = self.of(shape, chains, even=True)
            if shape == np.shape(x):
                return put(x, sharding)
            return jax.make_array_from_process_local_data(sharding, np.asarray(x), shape)

        return jax.tree.map(place, tree)

    def constrain(self, tree: Any, chains: bool) -> Any:
        """Keep rows on the devices where they belong, inside a program for the chains of one group of devices."""
        if self.mesh.shape["row"] == 1:
            return tree

        def keep(x):
            axes = self.of(x.shape, chains, even=False).spec
            return jax.lax.with_sharding_constraint(
                x, PartitionSpec(*[None if axis == "chain" else axis for axis in axes])
            )

        return jax.tree.map(keep, tree)


def put(x: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Copy an array of the host to devices. Where some are those of other processes, these do so with their own."""
    if sharding.is_fully_addressable:
        return jax.device_put(x, sharding)
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda part: x[part])


def choose_placement(
    transitions: Sequence[Transition],
    devices: str | Sequence | None,
    chains: int,
    shards: int,
    local_rows: bool = False,
) -> Placement:
    """Choose how the chains of some transitions are spread over devices.

    Parameters
    ----------
    transitions : sequence of Transition
        The transitions, which know how many samples their data have.
    devices, chains, shards, local_rows
        As in :func:`pymc_gibbsnn.sample`.

    Returns
    -------
    Placement

    Raises
    ------
    TypeError
        If ``devices`` is neither a name nor a list of JAX's devices.
    ValueError
        If there are no such devices, or chains or rows cannot be spread over them.
    """
    rows = frozenset(len(evaluate(t.rows)) for t in transitions if t.rows is not None)
    parts = jax.process_count() if local_rows else 1
    if local_rows and (len(rows) != 1 or not all(t.latents for t in transitions)):
        raise ValueError("local_rows=True is for GibbsNN, and for networks of the same rows.")
    mesh = Mesh(_grid(devices, chains, shards, parts), ("chain", "row"))
    if parts > 1:
        rows = _of_all_processes(transitions, rows, parts, shards)
    if rows and shards > min(rows):
        raise ValueError(f"{shards} shards are more than the {min(rows)} rows of the data.")
    return Placement(mesh, rows, parts)


def _of_all_processes(
    transitions: Sequence[Transition], rows: frozenset[int], parts: int, shards: int
) -> frozenset[int]:
    """Return the numbers of samples of all processes, of which each has as many as this one.

    Parameters
    ----------
    transitions : sequence of Transition
        The transitions.
    rows : frozenset of int
        Their numbers of samples in this process.
    parts, shards : int
        The number of processes, and that of devices that share the rows of a chain.

    Raises
    ------
    ValueError
        If processes have different numbers, devices cannot share them evenly, or other axes have that length.
    """
    (n,) = rows
    if len({*(counts := all_say(rows=n)["rows"].tolist())}) > 1:
        raise ValueError(f"local_rows=True needs equally many rows in each process; found {counts}.")
    if n * parts % shards:
        raise ValueError(f"{shards} shards cannot share {n * parts} rows evenly.")
    inputs = evaluate(transitions[0].rows)
    others = [v.type.shape for t in transitions for v in t.variables if v not in t.latents]
    if n in {*inputs.shape[1:], *(length for shape in others for length in shape)}:
        raise ValueError(
            f"The {n} rows of each process cannot be told from another axis of that length: give it others."
        )
    return frozenset({n * parts})


def _grid(devices: str | Sequence | None, chains: int, shards: int, parts: int = 1) -> np.ndarray:
    """Arrange devices in a grid (groups of chains, shards of rows).

    Parameters
    ----------
    devices, chains, shards
        As in :func:`pymc_gibbsnn.sample`.
    parts : int
        How many processes have a part of the rows each; each group then has as many devices of every process.
    """
    if devices is None or isinstance(devices, str):
        try:
            devices = jax.devices(devices)
            devices = devices if one_of_many() else devices[:shards]
        except RuntimeError as error:
            raise ValueError(
                f"devices must name a kind of device that JAX finds here, or be a list; found {devices!r}. {error}."
            ) from None
    listed = [*devices] if isinstance(devices, Iterable) else [devices]
    if not isinstance(devices, Iterable) or not all(isinstance(one, jax.Device) for one in listed):
        raise TypeError(
            f"devices must name a kind of device, such as 'cpu', or be a list of JAX's devices, such as "
            f"jax.devices()[:2]; found {describe(devices)}."
        )
    devices = np.array(listed, dtype=object)
    if devices.size < shards:
        raise ValueError(f"shards={shards} needs at least as many devices; found {devices.size}.")
    if devices.size % shards:
        raise ValueError(f"shards must divide the number of devices, {devices.size}; found {shards}.")
    if shards % parts:
        raise ValueError(f"local_rows=True needs shards that {parts} processes can share; found shards={shards}.")
    if parts > 1:
        devices = np.array(sorted(devices, key=lambda device: device.process_index), dtype=object)
    grid = devices.reshape(parts, -1, shards // parts).swapaxes(0, 1).reshape(-1, shards)
    if chains % len(grid):
        raise ValueError(
            f"{chains} chains cannot be spread evenly over {len(grid)} groups of devices: "
            f"use a multiple of {len(grid)} chains, or other devices or shards."
        )
    return grid

"""How the arrays of a JAX program are spread over devices, by chains and by samples of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pymc_gibbsnn.drivers.processes import one_of_many
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
    """

    mesh: Mesh
    rows: frozenset[int]

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
        return jax.tree.map(lambda x: put(x, self.of(np.shape(x), chains, even=True)), tree)

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
    transitions: Sequence[Transition], devices: str | Sequence | None, chains: int, shards: int
) -> Placement:
    """Choose how the chains of some transitions are spread over devices.

    Parameters
    ----------
    transitions : sequence of Transition
        The transitions, which know how many samples their data have.
    devices, chains, shards
        As in :func:`pymc_gibbsnn.sample`.

    Returns
    -------
    Placement

    Raises
    ------
    ValueError
        If there are no such devices, or chains or rows cannot be spread over them.
    """
    rows = frozenset(len(evaluate(t.rows)) for t in transitions if t.rows is not None)
    mesh = Mesh(_grid(devices, chains, shards), ("chain", "row"))
    if rows and shards > min(rows):
        raise ValueError(f"{shards} shards are more than the {min(rows)} rows of the data.")
    return Placement(mesh, rows)


def _grid(devices: str | Sequence | None, chains: int, shards: int) -> np.ndarray:
    """Arrange devices in a grid (groups of chains, shards of rows)."""
    if devices is None or isinstance(devices, str):
        try:
            devices = jax.devices(devices)
            devices = devices if one_of_many() else devices[:shards]
        except RuntimeError as error:
            raise ValueError(
                f"devices must name a kind of device that JAX finds here, or be a list; found {devices!r}. {error}."
            ) from None
    devices = np.array(devices, dtype=object)
    if devices.size % shards:
        raise ValueError(f"shards must divide the number of devices, {devices.size}; found {shards}.")
    grid = devices.reshape(-1, shards)
    if chains % len(grid):
        raise ValueError(
            f"{chains} chains cannot be spread evenly over {len(grid)} groups of devices: "
            f"use a multiple of {len(grid)} chains, or other devices or shards."
        )
    return grid

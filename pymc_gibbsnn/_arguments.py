"""How the functions of this package check their arguments; all errors read "name must be ...; found ...".

Each function here is given the name of an argument and the value that a user gave, and returns the value in the type
that the package works with, or raises an error.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.basic import Variable

from pymc_gibbsnn._compat import dataset_of

__all__ = [
    "boolean",
    "describe",
    "each",
    "group_of",
    "model_of",
    "named_variables",
    "number",
    "one_of",
    "pair",
    "path_of",
    "positive",
    "posterior_of",
    "positive_array",
    "positive_numbers",
    "seeds_of_chains",
    "string_list",
    "whole",
    "widths",
]

SHOWN = 60  # how many characters of a value an error message shows


def describe(value: Any) -> str:
    """Describe a value in a few words, for an error message."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Variable):
        return f"the variable '{value.name}'" if value.name else "an expression of PyTensor"
    if isinstance(value, pm.Model):
        return "a PyMC model"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, np.ndarray) and (value.size > 6 or value.ndim > 1):
        return f"an array of shape {value.shape}"
    text = np.array2string(value, precision=4) if isinstance(value, np.ndarray) else repr(value)
    if len(text) <= SHOWN:
        return text
    sized = f" of length {len(value)}" if isinstance(value, Sequence) else ""
    return f"{type(value).__name__}{sized}: {text[:SHOWN]}..."


def whole(name: str, value: Any, least: int = 1, why: str = "") -> int:
    """Require an integer that is large enough; a float such as 3.0 counts as one.

    Parameters
    ----------
    name : str
        The name of the argument.
    value
        What the user gave.
    least : int
        The smallest value that is allowed.
    why : str
        What follows "must be a positive integer" in the message of an error.

    Returns
    -------
    int

    Raises
    ------
    TypeError
        If the value is no number.
    ValueError
        If it is no whole number, or too small.
    """
    what = {0: "an integer of at least 0", 1: "a positive integer"}.get(least, f"an integer of at least {least}")
    return int(number(name, value, what + why, lambda x: x == int(x) and x >= least))


def pair(name: str, value: Any, least: int = 1) -> tuple[int, int]:
    """Require two integers that are large enough, or one that stands for both.

    Raises
    ------
    TypeError
        If the value holds anything but numbers.
    ValueError
        If there are not one or two of them, or one is no whole number or too small.
    """
    both = [value, value] if np.ndim(value) == 0 else list(value)
    if len(both) != 2:
        raise ValueError(f"{name} must be one integer or two, for height and width; found {describe(value)}.")
    return tuple(whole(name, one, least) for one in both)


def positive(name: str, value: Any, why: str = "") -> float:
    """Require a positive, finite number; ``why`` follows these words in the message of an error.

    Raises
    ------
    TypeError
        If the value is no number.
    ValueError
        If it is not positive and finite.
    """
    return number(name, value, f"a positive, finite number{why}", lambda x: x > 0)


def number(name: str, value: Any, what: str, holds: Callable[[float], bool] = lambda x: True) -> float:
    """Require a finite number that satisfies a condition.

    Parameters
    ----------
    name : str
        The name of the argument.
    value
        What the user gave.
    what : str
        What the number must be, in words.
    holds : callable
        The condition, a function of the number.

    Returns
    -------
    float

    Raises
    ------
    TypeError
        If the value is no number.
    ValueError
        If it is not finite or the condition does not hold.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {what}; found {describe(value)}.")
    if not (math.isfinite(value) and holds(value)):
        raise ValueError(f"{name} must be {what}; found {describe(value)}.")
    return float(value)


def path_of(name: str, value: Any) -> Path:
    """Require a path.

    Raises
    ------
    TypeError
        If the value is something else than a string or a path.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path; found {describe(value)}.")
    return Path(value)


def boolean(name: str, value: Any) -> bool:
    """Require True or False itself, and no other value that Python would treat as one of them.

    Raises
    ------
    TypeError
        If the value is neither.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; found {describe(value)}.")
    return bool(value)


def one_of(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Require one of the allowed values, which are names or constants such as False.

    Raises
    ------
    ValueError
        If the value is none of them.
    """
    allowed = list(allowed)
    if isinstance(value, np.generic):
        value = value.item()
    if not any(type(value) is type(known) and value == known for known in allowed):
        *others, last = map(repr, allowed)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}; found {describe(value)}.")
    return value


def string_list(name: str, value: Any) -> list[str]:
    """Require a list of names.

    Raises
    ------
    TypeError
        If the value is a single name, which Python would take for a list of letters, or holds anything but names.
    """
    if isinstance(value, str):
        raise TypeError(f"{name} must be a list of names; found the name {value!r}: write {name}=[{value!r}].")
    if not isinstance(value, Iterable) or isinstance(value, Variable):
        raise TypeError(f"{name} must be a list of names; found {describe(value)}.")
    names = list(value)
    wrong = [one for one in names if not isinstance(one, str)]
    if wrong:
        raise TypeError(f"{name} must be a list of names; found {describe(wrong[0])} among them.")
    return names


def widths(name: str, value: Any, each: str = "one for each hidden layer") -> list[int]:
    """Require the widths of layers, a positive integer or a sequence of them; ``each`` says in words of which layers.

    Raises
    ------
    TypeError
        If the value holds anything but numbers.
    ValueError
        If one of them is no positive integer.
    """
    listed = [value] if np.ndim(value) == 0 else list(value)
    what = f"{name} must hold positive integers, {each}"
    if np.ndim(value) > 1:
        raise TypeError(f"{what}; found {describe(value)}.")
    for one in listed:
        if isinstance(one, bool | np.bool_) or not isinstance(one, Real):
            raise TypeError(f"{what}; found {describe(value)}.")
        if not (math.isfinite(one) and one == int(one) and one > 0):
            raise ValueError(f"{what}; found {describe(value)}.")
    return [int(one) for one in listed]


def seeds_of_chains(random_seed: Any, chains: int) -> list[int]:
    """Return a seed for each chain, those that ``pm.sample`` would use.

    Raises
    ------
    TypeError
        If ``random_seed`` is neither an integer, a NumPy generator, a sequence of integers nor None.
    ValueError
        If a sequence holds another number of seeds than there are chains.
    """
    if isinstance(random_seed, np.random.Generator | np.random.RandomState):
        generator = random_seed
    elif isinstance(random_seed, Sequence | np.ndarray) and np.ndim(random_seed) == 1:
        if len(random_seed) != chains:
            raise ValueError(f"random_seed must hold a seed for each of {chains} chains; found {len(random_seed)}.")
        return [whole("random_seed", seed, 0) for seed in random_seed]
    else:
        seed = None if random_seed is None else whole("random_seed", random_seed, 0, why=", a generator or None")
        if chains == 1 and seed is not None:
            return [seed]
        generator = np.random.default_rng(seed)
    integers = generator.randint if isinstance(generator, np.random.RandomState) else generator.integers
    seeds: list[int] = []
    while len(set(seeds)) != chains:  # so that no two are the same
        seeds = integers(2**30, dtype=np.int64, size=chains).tolist()
    return seeds


def model_of(value: Any) -> pm.Model:
    """Require a PyMC model; None stands for that of the context.

    Raises
    ------
    TypeError
        If the value is no model, or there is neither one nor a context.
    """
    if value is not None and not isinstance(value, pm.Model):
        is_data = hasattr(value, "shape") or isinstance(value, list | Mapping)
        hint = ": new rows are given by their name, X_new=" if is_data else ""
        raise TypeError(f"model must be a PyMC model; found {describe(value)}{hint}.")
    if value is None and pm.Model.get_context(error_if_none=False) is None:
        raise TypeError("model must be a PyMC model; found none: give model=, or call this inside `with model:`.")
    return pm.modelcontext(value)


def positive_numbers(name: str, value: Any, what: str) -> np.ndarray:
    """Require one positive, finite number or several, and return an array; ``what`` says in words what they are.

    Raises
    ------
    TypeError
        If the value holds anything but numbers.
    ValueError
        If one is not positive and finite.
    """
    must_be = f"{name} must be {what}, one positive, finite number or several"
    if isinstance(value, Variable):
        raise TypeError(f"{must_be}; found {describe(value)}. To learn it, write the model by hand.")
    try:
        numbers = np.asarray(None if isinstance(value, str) else value)
        if numbers.dtype.kind not in "iuf":
            raise TypeError
    except (TypeError, ValueError):
        raise TypeError(f"{must_be}; found {describe(value)}.") from None
    if not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ValueError(f"{must_be}; found {describe(value)}.")
    return numbers.astype(float)


def positive_array(name: str, value: Any, count: int, each: str, what: str) -> np.ndarray:
    """Require one positive, finite number for all of ``count`` things, or one for each; return an array of that many.

    Parameters
    ----------
    name : str
        The name of the argument.
    value : float or sequence of float
        What the user gave.
    count : int
        How many things there are.
    each : str
        What the things are, in words.
    what : str
        What the numbers are, in words.

    Returns
    -------
    array of shape (count,)

    Raises
    ------
    TypeError
        If the value holds anything but numbers.
    ValueError
        If their count does not fit, or one is not positive and finite.
    """
    numbers = positive_numbers(name, value, what)
    if numbers.shape not in ((), (count,)):
        raise ValueError(f"{name} must be one number or {count}, one for each of {each}; found {describe(value)}.")
    return np.broadcast_to(numbers, (count,))


def each(name: str, value: Any, things: Sequence[str], words: Sequence[str], what: str) -> list[float | str]:
    """Require a positive, finite number or a word for each of some things, given for all at once or one by one.

    Parameters
    ----------
    name : str
        The name of the argument.
    value : float, str, or sequence of them
        What the user gave.
    things : sequence of str
        The names of the things.
    words : sequence of str
        The words that may stand in place of a number.
    what : str
        What the numbers are, in words.

    Returns
    -------
    list of float or str
        One for each of the things.

    Raises
    ------
    TypeError
        If the value holds anything but numbers and words.
    ValueError
        If their count does not fit, a number is not positive and finite, or a word is another one.
    """
    allowed = " or ".join([f"{what}, a positive, finite number", *map(repr, words)])
    must_be = f"{name} must be {allowed}, one for all or one for each of {', '.join(things)}"
    if isinstance(value, Variable | Mapping) or value is None:
        raise TypeError(f"{must_be}; found {describe(value)}.")
    values = [value] * len(things) if np.ndim(value) == 0 else list(value)
    for one in values:
        is_number = isinstance(one, Real) and not isinstance(one, bool | np.bool_)
        if not (is_number or isinstance(one, str)):
            raise TypeError(f"{must_be}; found {describe(value)}.")
        if not (math.isfinite(one) and one > 0 if is_number else one in words):
            raise ValueError(f"{must_be}; found {describe(value)}.")
    if len(values) != len(things):
        raise ValueError(f"{must_be}, which are {len(things)}; found {describe(value)}.")
    # PyTensor would keep a plain number that fits in single precision, and PyMC compute its logarithm there.
    return [one if isinstance(one, str) else np.float64(one) for one in values]


def named_variables(model: pm.Model, vars: Sequence[Variable] | Variable | None) -> list[Variable] | None:
    """Find the free random variables that a user names, in the order of the model; None if the user names none.

    Parameters
    ----------
    model : pm.Model
        The model.
    vars : Variable or sequence of Variable, optional
        Random or value variables.

    Returns
    -------
    list of Variable or None

    Raises
    ------
    TypeError
        If one of them is no variable, but a name, say.
    ValueError
        If one of them is no free variable of the model, or the list is empty.
    """
    if vars is None:
        return None
    listed = [vars] if isinstance(vars, Variable | str) or not isinstance(vars, Iterable) else list(vars)
    for var in listed:
        if not isinstance(var, Variable):
            hint = f": write model[{var!r}]" if isinstance(var, str) and var in model.named_vars else ""
            raise TypeError(f"vars must be a list of variables of the model; found {describe(var)}{hint}.")
    rvs = [model.values_to_rvs.get(var, var) for var in listed]
    names = [rv.name for rv in model.free_RVs]
    foreign = [describe(rv) for rv in rvs if rv not in model.free_RVs]
    if foreign or not rvs:
        wrong = ", ".join(foreign) or "an empty list"
        raise ValueError(f"vars must be free variables of the model, which has {names}; found {wrong}.")
    return [rv for rv in model.free_RVs if rv in rvs]


def posterior_of(name: str, idata: Any, thin: int = 1) -> xr.Dataset:
    """Return the posterior of what ``pm.sample`` or ``pmg.sample`` returned, as a dataset, with every thin-th draw.

    Raises
    ------
    TypeError
        If the value is something else.
    ValueError
        If it holds no posterior, or the posterior has no dimensions of chains and draws, or no draws, or ``thin`` is no
        positive integer.
    """
    posterior = group_of(name, idata, "posterior")
    for dim in ("chain", "draw"):
        if posterior.sizes.get(dim) == 0:
            raise ValueError(f"{name} must hold draws; its posterior has no {dim}s. A run that tunes has none yet.")
        if dim not in posterior.dims:
            raise ValueError(
                f"{name} must have the dimensions chain and draw; its posterior has no '{dim}'. To take a single one, "
                f"keep the dimension: isel({dim}=[0])."
            )
    return posterior.isel(draw=slice(None, None, whole("thin", thin)))


def group_of(name: str, idata: Any, group: str) -> xr.Dataset:
    """Return a group of what ``pm.sample`` or ``pmg.sample`` returned, as a dataset.

    Raises
    ------
    TypeError
        If the value is something else.
    ValueError
        If it holds no such group.
    """
    try:
        dataset = dataset_of(idata, group)
        if isinstance(dataset, xr.Dataset):
            return dataset
        raise TypeError
    except (TypeError, IndexError):
        raise TypeError(f"{name} must be what pm.sample returned; found {describe(idata)}.") from None
    except (KeyError, AttributeError):
        raise ValueError(f"{name} must hold the group {group}, as what pm.sample returns does; found none.") from None

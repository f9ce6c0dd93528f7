"""Error messages for models that are no noisy networks: the variable, what was found, and the nearest known form.

Each function returns the text of a message; ``name`` is the name of the variable of which it speaks.
"""

from __future__ import annotations

import pytensor.scalar as ps
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.random.op import RandomVariable

from pymc_gibbsnn.networks.forms import is_elemwise, match_product, terms, undimshuffle
from pymc_gibbsnn.networks.notation import law, show

__all__ = [
    "impossible_factor",
    "missing_values",
    "no_activation",
    "no_normal",
    "no_product",
    "no_weights",
    "noiseless_input",
    "shared",
    "two_products",
]

OTHERS = "FNBG, PCN, PCNL and MALA sample networks without noise inside"
WEIGHTS = "W = pm.Normal('W', 0, scale, ...)"


def no_normal(name: str, op: RandomVariable, observed: bool) -> str:
    """Say that a part of a network has another distribution than Normal."""
    found = law(op)
    if "Minibatch" in found:
        return (
            f"'{name}' observes a minibatch, but a Gibbs sweep takes all data at once: observe all of them, or sample "
            f"with pmg.FNBG(), which takes minibatches."
        )
    if not observed:
        return f"'{name}' must be pm.Normal to be a part of a noisy network; found {found}."
    if found in ("Categorical", "Bernoulli"):
        label = "ArgmaxLabel" if found == "Categorical" else "SignLabel"
        return (
            f"'{name}' is {found}, but classes of a noisy network have a probit likelihood: give the last layer noise, "
            f"Z = pm.Normal('Z', ..., sigma), and write pmg.{label}('{name}', Z, observed=...). {OTHERS}."
        )
    return f"'{name}' must be pm.Normal, or a label of a Normal; found {found}. {OTHERS}."


def no_product(mean: Variable, name: str, latent: str | None = None) -> str:
    """Say that a mean holds no product of an input with weights.

    Parameters
    ----------
    mean : Variable
        The mean.
    name : str
        The name of the variable of which it is the mean.
    latent : str, optional
        The name of the latent in it around which data lie, if it is one.

    Returns
    -------
    str
    """
    if latent is not None:
        return (
            f"The mean of '{name}' is {show(mean)}, where data lie around a latent as it is, of the shape of the data: "
            f"pm.Normal('{name}', {latent}, sigma, observed=y). Put what else is in the mean into that of '{latent}'."
        )
    for term in terms(mean):
        op, product = getattr(term.owner, "op", None), _product_inside(term)
        if product is not None and is_elemwise(term, ps.Second):  # what PyTensor makes of a product times 0
            return impossible_factor(show(product), 0, name)
        if product is not None:
            weights = show(match_product(product)[1])
            return (
                f"The mean of '{name}' is {show(mean)}, where the product {show(product)} must be a term by itself: "
                f"put a factor into its prior, {weights} = pm.Normal('{weights}', 0, factor * scale, ...), the "
                f"same model, and leave out a minus sign, for the prior is symmetric."
            )
        if (isinstance(op, CAReduce) and is_elemwise(term.owner.inputs[0], ps.Mul)) or "Einsum" in type(op).__name__:
            return f"The mean of '{name}' is {show(mean)}: write this product as A @ W."
    return f"The mean of '{name}' is {show(mean)}, where a layer is A @ W.T + b with weights {WEIGHTS}."


def impossible_factor(part: str, factor: float, name: str) -> str:
    """A product or a bias that the model multiplies by 0, or by what is no finite number."""
    return (
        f"The mean of '{name}' holds {part} times {factor:g}, where a factor is a finite number other than 0: leave "
        f"out what is multiplied by 0, and mind that numbers below 1e-308 are 0."
    )


def _product_inside(term: Variable) -> Variable | None:
    """Find the matrix product from which an expression is made by elementwise operations; None if there is none."""
    if match_product(term):
        return term
    if term.owner is None or not isinstance(term.owner.op, Elemwise):
        return None
    return next((found for x in term.owner.inputs if (found := _product_inside(x)) is not None), None)


def two_products(products: list[Variable], name: str) -> str:
    """Say that a hidden layer has several products."""
    return (
        f"The mean of '{name}' holds two products, {' and '.join(map(show, products[:2]))}, where a hidden layer has "
        f"one: put inputs side by side, np.concatenate([...], axis=1), with one matrix of weights for all columns."
    )


def noiseless_input(source: Variable, inner: str, name: str) -> str:
    """Say that the input of a layer is neither data nor a latent."""
    if isinstance(source.owner.op, Join):
        return (
            f"'{inner}' enters '{name}' in {show(source)}, where the input of a layer is data alone, or one noisy "
            f"post-activation: write a bias as A @ W.T + b; connections that skip a layer are not known. {OTHERS}."
        )
    return (
        f"'{inner}' enters '{name}' through {show(source)}, which carries no noise: give it a latent of its own, "
        f"A = pm.Normal('A', {show(source)}, sigma), and let '{name}' take A. {OTHERS}."
    )


def no_weights(term: Variable, name: str) -> str:
    """Say that an input is multiplied with something else than a variable."""
    message = f"The mean of '{name}' holds a product with {show(term)}, where a product is with weights, "
    if is_elemwise(term, (ps.Mul, ps.TrueDiv)):
        return f"{message}one variable: put a factor into its prior, W = pm.Normal('W', 0, factor * scale, ...)."
    if isinstance(undimshuffle(term), Constant):
        return f"{message}a variable instead of numbers: {WEIGHTS}."
    return f"{message}a variable with a Normal prior: {WEIGHTS}."


def no_activation(mean: Variable, name: str, inner: list[str]) -> str:
    """Say that a post-activation is no function of one pre-activation alone."""
    found = f"depends on {inner}" if inner else "depends on no variable"
    return (
        f"'{name}' enters a layer, so its mean must be an activation of one pre-activation, whose coefficients are "
        f"numbers; found {show(mean)}, which {found}."
    )


def shared(name: str, child: str, users: list[str], observed: set[str]) -> str:
    """Say that a part of a network is used elsewhere, too.

    Parameters
    ----------
    name : str
        The name of the part.
    child : str
        The name of the variable in which it should be used alone.
    users : list of str
        The names of all variables in which it is used.
    observed : set of str
        The names of the variables that the model observes.

    Returns
    -------
    str
    """
    message = f"'{name}' must enter '{child}' and nothing else; it is used by {users}."
    if not set(users) <= observed:
        return message
    return f"{message} Outputs that share a hidden layer are columns of one output: observe np.column_stack([...])."


def missing_values(name: str) -> str:
    """Say that an observed variable has missing values, of which PyMC has made a second variable."""
    return (
        f"'{name}' has missing values, for which PyMC makes a variable '{name}_unobserved': drop the rows with missing "
        f"values from inputs and targets."
    )

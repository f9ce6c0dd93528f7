"""Docstrings say what a stranger needs: what is passed in, what goes wrong, whose method it is, and how to call it."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pymc_gibbsnn as pmg

PACKAGE = Path(pmg.__file__).parent
MANY = 4  # parameters, self and cls not counted

PUBLIC = {name: getattr(pmg, name) for name in pmg.__all__ if callable(getattr(pmg, name))}
OURS = {  # what comes from no paper
    "NetworkError",
    "PiecewiseLinear",
    "continue_from",
    "plot_acceptance",
    "plot_predictive_band",
    "sample",
    "without_latents",
}
PLAIN = {"NetworkError", "TeacherStudent"}  # an error and a container: they check nothing


def section(docstring: str | None, name: str) -> str:
    """The text of a section of a numpydoc docstring; empty if it is not there."""
    found = re.search(rf"^{name}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", docstring or "", re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def listed(docstring: str | None) -> set[str]:
    """Names of the parameters that a docstring lists: ``a``, ``a, b`` or ``a, b : type`` at the left margin."""
    heads = re.findall(r"^(\*{0,2}\w[\w*, ]*?)(?: :.*)?$", section(docstring, "Parameters"), re.MULTILINE)
    return {name.strip(" *") for head in heads for name in head.split(",")}


def parameters(function: ast.FunctionDef) -> list[str]:
    """Names of all parameters but self and cls."""
    a = function.args
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])]
    return [one.arg for one in named if one.arg not in ("self", "cls")]


def functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[ast.FunctionDef, str]]:
    """Functions and methods, with their classes' docstrings; functions inside functions are parts of these."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, owner
        else:
            yield from functions(node, ast.get_docstring(node) or "" if isinstance(node, ast.ClassDef) else owner)


def of_interfaces(sources: list[str]) -> dict[str, set[str]]:
    """Parameters that methods of base classes list, by the names of these: what overrides one need not list them."""
    classes = [node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    bases, found = {base.id for one in classes for base in one.bases if isinstance(base, ast.Name)}, {}
    for function in (node for one in classes if one.name in bases for node in one.body):
        if isinstance(function, ast.FunctionDef):
            found.setdefault(function.name, set()).update(listed(ast.get_docstring(function)))
    return found


def not_listed(source: str, interfaces: dict[str, set[str]]) -> dict[str, list[str]]:
    """Parameters that no docstring lists, by the names of functions that have many parameters."""
    found = {}
    for function, of_class in functions(ast.parse(source)):
        names = parameters(function)
        known = listed(ast.get_docstring(function)) | interfaces.get(function.name, set())
        if function.name in ("__init__", "__call__"):
            known |= listed(of_class)
        missing = [name for name in names if name not in known]
        if len(names) >= MANY and missing:
            found[function.name] = missing
    return found


def test_functions_of_many_parameters_list_them():
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    interfaces = of_interfaces([*sources.values()])
    found = {path: not_listed(source, interfaces) for path, source in sources.items()}
    assert {name: missing for name, missing in found.items() if missing} == {}


def test_a_parameter_that_is_not_listed_is_found():
    source = '''
def f(a, b, c, *rest, **others):
    """Add.

    Parameters
    ----------
    a, b : int
        They are added, c : not so.
    **others
    """

class Point:
    """A point.

    Parameters
    ----------
    x, y, z, t : float
    """
    def __init__(self, x, y, z, t): ...
    def move(self, x, y, z, t): ...

def few(a, b, c): ...

class Interface:
    def fill(self, x, y, z, t):
        """Fill.

        Parameters
        ----------
        x, y, z : int
        """

class Kind(Interface):
    def fill(self, x, y, z, t): ...
'''
    expected = {"f": ["c", "rest"], "move": ["x", "y", "z", "t"], "fill": ["t"]}
    assert not_listed(source, of_interfaces([source])) == expected


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_say_what_a_caller_needs(name):
    thing, docstring = PUBLIC[name], inspect.cleandoc(PUBLIC[name].__doc__)
    wanted = ["Examples"]
    if inspect.isfunction(thing):
        wanted += ["Parameters", "Returns"]
        names = {p.name for p in inspect.signature(thing).parameters.values()}
        assert names <= listed(docstring)
    elif name != "NetworkError":
        wanted.append("Parameters")
    wanted += ["Raises"] if name not in PLAIN else []
    assert [title for title in wanted if not section(docstring, title)] == []
    if name not in OURS:
        assert section(docstring, "References") or "arXiv" in docstring

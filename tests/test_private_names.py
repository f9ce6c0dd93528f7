"""Private names of PyMC, PyTensor, Numba and Python that the package uses: any release of theirs may change them.

Those of the fast linker, and those with which the package does without what they give, are not needed to run.
"""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pymc_gibbsnn as pmg

PACKAGE = Path(pmg.__file__).parent
NEEDED = {"_supp_shape_from_params": "pytensor.tensor.random.op"}  # with the module where each is defined
OF_THE_FAST_LINKER = {
    "_cache": "numba.core.dispatcher",
    "_codegen": "numba.core.codegen",
    "_compile_for_args": "numba.core.dispatcher",
    "_compiled_object": "numba.core.codegen",
    "_data_layout": "numba.core.codegen",
    "_empty_nd_impl": "numba.np.arrayobj",
    "_engine": "numba.core.codegen",
    "_ensure_finalized": "numba.core.codegen",
    "_final_module": "numba.core.codegen",
    "_finalize_dynamic_globals": "numba.core.codegen",
    "_function_pass_manager": "numba.core.codegen",
    "_getvalue": "numba.core.cgutils",
    "_internal_codegen": "numba.core.cpu",
    "_object_caching_enabled": "numba.core.codegen",
}
DISPENSABLE = {
    "_data_path": "numba.core.caching",
    "_index_path": "numba.core.caching",
    "_load_data": "numba.core.caching",
    "_load_index": "numba.core.caching",
    "_print_name": "pymc.distributions.multivariate",
    "_signal": "signal",
}
OF_CALLS = {  # functions of pymc.sampling, their local variables, and attributes of these, with the modules
    "_iter_sample": "mcmc",
    "_prepare_iter_population": "population",
    "_start_loop": "parallel",
    "chain": "mcmc",
    "chains": "mcmc",
    "compute_convergence_checks": "mcmc",
    "draws": "mcmc",
    "initial_points": "mcmc",
    "initvals": "mcmc",
    "sample": "mcmc",
    "self._blas_cores": "parallel",
    "self._mp_start_method": "parallel",
    "self._tune": "parallel",
    "self.chain": "parallel",
    "tune": "mcmc",
    "var_names": "mcmc",
}
OVERRIDDEN = {"_finalize_final_module", "_finalized", "_optimize_final_module"}  # by the fast linker
OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace"}  # documented, in spite of its underscore


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_of_others(sources: list[str]) -> set[str]:
    """Private names that modules import from other packages or look up there, and all that they read off calls."""
    found, own, off_calls = set(), set(), set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        match node:
            case ast.ImportFrom(module=module, level=0) if module.split(".")[0] != "pymc_gibbsnn":
                found |= {*module.split("."), *(alias.name for alias in node.names)}
            case ast.Import():
                found |= {name for alias in node.names for name in alias.name.split(".")}
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Store()):
                own.add(attr)
            case ast.Attribute(attr=attr):
                found.add(attr)
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                own.add(name)
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=arguments):
                found |= strings(arguments)
            case ast.Call(func=ast.Name(id="call_in_pymc" | "read_locals"), args=arguments):
                off_calls |= strings(arguments)
    return {name for name in found - own if private(name)} | off_calls


def strings(arguments: list[ast.expr]) -> set[str]:
    return {x.value for x in arguments if isinstance(x, ast.Constant) and isinstance(x.value, str)}


def test_every_private_name_of_another_package_is_listed():
    found = names_of_others([path.read_text() for path in PACKAGE.rglob("*.py")])
    ours = OVERRIDDEN | OF_NAMED_TUPLES | {*NEEDED}  # which is overridden, too
    assert found - ours == {*OF_THE_FAST_LINKER, *DISPENSABLE, *OF_CALLS}
    assert len(NEEDED) <= 8


def test_private_names_are_where_we_look():
    of_calls = {name.removeprefix("self."): f"pymc.sampling.{module}" for name, module in OF_CALLS.items()}
    for name, module in (NEEDED | OF_THE_FAST_LINKER | DISPENSABLE | of_calls).items():
        found = import_module(module)
        assert hasattr(found, name) or re.search(rf"\b{name}\b", inspect.getsource(found)), f"{module} has no {name}"

"""Private names of PyMC, PyTensor, Numba and Python that the package uses: any release of theirs may change them.

They are why ``pyproject.toml`` caps PyMC, which in turn allows few releases of PyTensor, and PyTensor few of Numba.
"""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pymc_gibbsnn as pmg

PACKAGE = Path(pmg.__file__).parent
IMPORTED = {
    "numba.np.arrayobj._empty_nd_impl",
    "pymc.util._get_seeds_per_chain",
    "_signal.SIGINT",
    "_signal.getsignal",
    "_signal.signal",
}
LOOKED_UP = {  # where each is defined
    "_blas_cores": "pymc.sampling.parallel",
    "_iter_sample": "pymc.sampling.mcmc",
    "_mp_start_method": "pymc.sampling.parallel",
    "_prepare_iter_population": "pymc.sampling.population",
    "_start_loop": "pymc.sampling.parallel",
    "_tune": "pymc.sampling.parallel",
    "_supp_shape_from_params": "pytensor.tensor.random.op",
    "_config_var_dict": "pytensor.configparser",
    "_cache": "numba.core.dispatcher",
    "_codegen": "numba.core.codegen",
    "_compile_for_args": "numba.core.dispatcher",
    "_compiled_object": "numba.core.codegen",
    "_data_layout": "numba.core.codegen",
    "_data_path": "numba.core.caching",
    "_engine": "numba.core.codegen",
    "_ensure_finalized": "numba.core.codegen",
    "_final_module": "numba.core.codegen",
    "_finalize_dynamic_globals": "numba.core.codegen",
    "_finalize_final_module": "numba.core.codegen",
    "_finalized": "numba.core.codegen",
    "_function_pass_manager": "numba.core.codegen",
    "_getvalue": "numba.core.cgutils",
    "_index_path": "numba.core.caching",
    "_internal_codegen": "numba.core.cpu",
    "_load_data": "numba.core.caching",
    "_load_index": "numba.core.caching",
    "_object_caching_enabled": "numba.core.codegen",
    "_optimize_final_module": "numba.core.codegen",
    "_getframe": "sys",
}
OVERRIDDEN = {"_finalize_final_module", "_finalized", "_optimize_final_module", "_supp_shape_from_params"}  # by ours
OF_NAMED_TUPLES = {"_replace"}  # documented, in spite of its underscore


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def names_of_others(sources: list[str]) -> tuple[set[str], set[str]]:
    """Private names that modules import from other packages, and those that they look up but do not define."""
    imported, looked_up, own = set(), set(), set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        match node:
            case ast.ImportFrom(module=module, level=0) if module.split(".")[0] != "pymc_gibbsnn":
                names = [f"{module}.{alias.name}" for alias in node.names]
                imported |= {name for name in names if any(map(private, name.split(".")))}
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Store()):
                own.add(attr)
            case ast.Attribute(attr=attr) if private(attr):
                looked_up.add(attr)
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                own.add(name)
            case ast.Call(func=ast.Name(id="call_in_pymc"), args=arguments):
                looked_up |= {argument.value for argument in arguments}
    return imported, looked_up - own


def test_every_private_name_of_another_package_is_listed():
    imported, looked_up = names_of_others([path.read_text() for path in PACKAGE.rglob("*.py")])
    assert imported == IMPORTED
    assert looked_up - OF_NAMED_TUPLES == {*LOOKED_UP} - OVERRIDDEN


def test_private_names_are_where_we_look():
    for name in IMPORTED:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name
    for name, module in LOOKED_UP.items():
        found = import_module(module)
        assert hasattr(found, name) or re.search(rf"\b{name}\b", inspect.getsource(found)), f"{module} has no {name}"

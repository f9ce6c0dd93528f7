"""The functions of which a kernel is made, optimised and turned into machine code with the kernel alone.

A function that Numba compiles calls others: those of this package, and hundreds of Numba's own. Numba optimises each of
them and turns it into machine code, then copies it into each function that calls it, and optimises the whole again, so
that code is optimised as often as calls are nested. Inside the context :func:`in_parts` a function is optimised, and
has machine code, only when it is called from outside. Until then it is a part, which is copied where it is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target

__all__ = ["in_parts"]

ENVIRONMENT = "_ZN08NumbaEnv"  # how the names begin by which compiled code finds what it needs of Python


class _Part(JITCodeLibrary):
    """The code of a function, which becomes machine code when its address is asked for, or when it is kept on disk."""

    has_machine_code = False

    def make_machine_code(self) -> None:
        """Optimise the function with all its parts, and turn it into machine code."""
        if self.has_machine_code:
            return
        self._ensure_finalized()
        self.has_machine_code = True
        super()._optimize_final_module()
        self._dynamic_globals = []  # addresses for which code cannot be kept on disk; optimised code may have none
        super()._finalize_final_module()
        for variable in self._final_module.global_variables:
            if variable.name.startswith(ENVIRONMENT) and (environment := lookup_environment(variable.name)):
                self._codegen.set_env(variable.name, environment)

    def get_pointer_to_function(self, name):
        """Return the address of one of the functions of the part; 0 if it has no such function."""
        self._ensure_finalized()
        if not self.has_machine_code:
            if all(function.name != name or function.is_declaration for function in self._final_module.functions):
                return 0
            self.make_machine_code()
        return super().get_pointer_to_function(name)

    def serialize_using_object_code(self):
        """Return what is kept on disk: of a part, its code as LLVM has it."""
        return super().serialize_using_object_code() if self.has_machine_code else self.serialize_using_bitcode()

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        if self._object_caching_enabled and self._compiled_object:  # it comes from disk
            self.has_machine_code = True
            super()._finalize_final_module()
        else:
            self._finalize_dynamic_globals()
            self._finalized = True


class _CodegenOfParts(JITCPUCodegen):
    """Numba's code generator, which makes parts."""

    _library_class = _Part

    def __init__(self, codegen: JITCPUCodegen):
        self.__dict__ = codegen.__dict__

    def set_env(self, env_name, env):
        if self._engine.is_symbol_defined(env_name):  # a part is told when it becomes machine code
            super().set_env(env_name, env)


@contextmanager
def in_parts() -> Iterator[None]:
    """Compile functions as parts of those that call them, while the context lasts."""
    with global_compiler_lock:
        context = cpu_target.target_context
        codegen = context.codegen()
        context._internal_codegen = _CodegenOfParts(codegen)
        try:
            yield
        finally:
            context._internal_codegen = codegen

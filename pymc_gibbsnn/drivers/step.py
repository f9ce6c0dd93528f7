"""The base class of our step methods, which runs a transition inside ``pm.sample``."""

from __future__ import annotations

import logging
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.blocking import PointType, StatsType
from pymc.logprob.utils import ParameterValueError
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.link.numba.linker import NumbaLinker
from rich.progress import TextColumn
from rich.table import Column

from pymc_gibbsnn._arguments import describe, model_of, whole
from pymc_gibbsnn._compat import call_in_pymc, number_of_chain, tuning_steps
from pymc_gibbsnn._data import check_coordinates
from pymc_gibbsnn.backends.jax_backend import jax_settings, random_state, refuse_jax_in_fork
from pymc_gibbsnn.backends.modes import compilation_mode, uses_jax, without_traces
from pymc_gibbsnn.backends.numba_cache import telling_of_compilation
from pymc_gibbsnn.backends.numba_kernels import with_our_kernels
from pymc_gibbsnn.backends.one_thread import ONE_THREAD
from pymc_gibbsnn.backends.threads import take_threads_of_blas, without_threads_of_blas
from pymc_gibbsnn.drivers.call_of_sample import CallOfSample, blas_threads_of_fork, call_of_sample, check_call_of_sample
from pymc_gibbsnn.drivers.compiled import compiled
from pymc_gibbsnn.drivers.finite import why_not_finite
from pymc_gibbsnn.drivers.initial_points import check_point
from pymc_gibbsnn.drivers.interrupts import remembered, uninterrupted
from pymc_gibbsnn.drivers.thinning import AUTO, SWEEPS, Thinning, most_sweeps
from pymc_gibbsnn.networks.network import evaluate
from pymc_gibbsnn.networks.reader import starting_point
from pymc_gibbsnn.prediction.observed_shapes import check_observed_shapes
from pymc_gibbsnn.prediction.provenance import FINGERPRINT, model_fingerprint
from pymc_gibbsnn.samplers.transition import Transition

__all__ = ["GraphStep", "options_of"]


COMPILING = "Compiling the sweep; the result is kept for later runs"
LOST_DIGITS = (
    "Noise is lost to rounding beside the signal where its variance is below about 1e-15 of the squared signal in "
    "double precision, and 1e-7 in single precision: take a larger sigma, or standardise inputs and targets."
)


@dataclass_state
class GraphStepState(StepMethodState):
    """The state with which a step can go on where it stopped, beside the point of the model's variables.

    ``step.sampling_state`` returns it, and another step of the same kind for the same model and data, to which it is
    assigned, makes the very draws that this one would have made. PyMC keeps the random generator in it.

    Attributes
    ----------
    carry : dict of str to array
        What the sampler remembers: step sizes, momenta, and what it has computed from the data.
    tune : bool
        Whether the chain is tuning.
    tune_steps, steps : int
        How many tuning steps the chain makes, and how many steps it has made.
    thinning : Thinning
        How many sweeps a draw has, and what that is chosen by.
    """

    carry: dict[str, np.ndarray]
    tune: bool
    tune_steps: int
    steps: int
    thinning: Thinning
    _jax_key: Any
    _is_over: bool
    _left: dict[str, np.ndarray] | None


class GraphStep(BlockedStep):
    """Runs a :class:`~pymc_gibbsnn.samplers.transition.Transition` inside ``pm.sample``.

    A step method of this package is a subclass with a name, a docstring and one function, :meth:`build_transition`,
    whose keyword arguments are the options of its sampler. The constructor takes them beside the arguments below, which
    all step methods share, and so does the signature that ``help`` shows.

    Parameters
    ----------
    vars : sequence of Variable, optional
        Random or value variables of the model to move. Each step method says which they are by default.
    sweeps_per_draw : int or "auto"
        How many transitions are made for each draw, those of the tuning included: 1,000 tuning draws of 100 are
        100,000 transitions. Each step method names its default; "auto" is for :class:`GibbsNN` alone.
    model : pm.Model, optional
        The model; by default that of the context.
    initial_point : dict of str to array, optional
        Values of value variables, for the first transition, whose result is discarded; by default the model's initial
        point.
    compile_kwargs : dict, optional
        Arguments of :func:`pytensor.function`. Without a ``mode`` the step compiles for Numba, unless PyTensor's
        configuration names another one.
    rng : int or numpy.random.Generator, optional
        The seed or generator to use until ``pm.sample`` sets its own.
    blocked : bool
        An argument of PyMC: whether one step moves all variables. False makes a step for each of them.
    **options
        The options of the sampler.

    Raises
    ------
    TypeError
        If an argument is of another type than asked for, or the sampler has no such option.
    ValueError
        If ``sweeps_per_draw`` is not positive, ``initial_point`` does not fit the model, data that it observes
        broadcast against their mean, or the names along a dimension of the model are such that no file can be made of
        them: tuples, intervals or dates, say.
    FloatingPointError
        While sampling, if the start or the first draw of a chain is not finite. If a later draw is not, the step warns,
        and this and all further draws of the chain are NaN.
    RuntimeError
        While sampling, if the data have changed since the chain began, or if a step that is compiled for JAX runs in a
        forked process.

    Notes
    -----
    The transition is compiled when ``pm.sample`` takes the step. One compiled call makes one transition; calls are
    repeated in Python for ``sweeps_per_draw``, since a call costs microseconds. With a JAX mode, chains in forked
    processes hang: such a step asks for ``cores=1`` or ``mp_ctx="forkserver"``. :func:`pymc_gibbsnn.sample` runs the
    same step in JAX without returning to Python.
    """

    default_blocked = True
    default_sweeps: int | str = 1
    _state_class = GraphStepState

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        options = _with_options(signature(GraphStep.__init__), signature(cls.build_transition)).parameters
        own = options | {SWEEPS: options[SWEEPS].replace(default=cls.default_sweeps)}
        cls.__signature__ = Signature([*own.values()])

    def __new__(cls, *args, **kwargs):
        """Check the model, into which PyMC looks before it calls the constructor."""
        model_of(kwargs.get("model"))
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        vars: Sequence[Variable] | None = None,
        *,
        sweeps_per_draw: int | str | None = None,
        model: pm.Model | None = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        rng=None,
        blocked: bool = True,
        **options,
    ):
        parameters = signature(type(self)).parameters
        known = [name for name, p in parameters.items() if p.kind is not Parameter.VAR_KEYWORD]
        unknown = [name for name in options if name not in known]
        if unknown and len(known) == len(parameters):
            raise TypeError(f"{type(self).__name__} has no argument {unknown[0]!r}; its arguments are {known}.")
        self.model = model_of(model)
        check_coordinates(self.model)
        sweeps_per_draw = self.default_sweeps if sweeps_per_draw is None else sweeps_per_draw
        may_be_auto = self.default_sweeps == AUTO
        is_auto = may_be_auto and isinstance(sweeps_per_draw, str) and sweeps_per_draw == AUTO
        self.sweeps_per_draw = AUTO if is_auto else whole(SWEEPS, sweeps_per_draw, why=f" or '{AUTO}'" * may_be_auto)
        if compile_kwargs is not None and not isinstance(compile_kwargs, Mapping):
            raise TypeError(
                f"compile_kwargs must be a dictionary, such as {{'mode': 'JAX'}}; found {describe(compile_kwargs)}."
            )
        if initial_point is not None:
            check_point(self.model, initial_point)
        check_observed_shapes(self.model)
        self.options = options
        self.transition = transition = self.build_transition(self.model, vars, **options)
        self.default_tune_steps = transition.tune_steps
        self._vars = list(transition.variables)
        self._stats = [*transition.stats, SWEEPS]
        self.constants = {FINGERPRINT: model_fingerprint(self.model)}  # statistics that are the same at every draw
        self.stats_dtypes = [dict.fromkeys([*self._stats, *self.constants], np.float64)]
        self.stats_dtypes_shapes = {name: (dtype, []) for name, dtype in self.stats_dtypes[0].items()}
        self._point = initial_point or starting_point(self.model)
        self._compile_kwargs = dict(compile_kwargs or {})
        self._mode = compilation_mode(self._compile_kwargs.pop("mode", None))
        self._uses_jax = uses_jax(self._mode)
        self._dtype = pytensor.config.floatX
        self._functions, self._warned, self._told = {}, False, False
        self.tuned, self.first_sweeps = {}, np.ones(1, int)
        self._call = CallOfSample(draws=1000, chains=4, searches=False)  # until there is one
        self.set_rng(rng)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is compiled; chains in processes that are not forked compile it again, from Numba's cache."""
        compiled = ("_inputs", "_tuning_dtype", "_stages", "_shared", "_seen")
        return self.__dict__ | dict.fromkeys(compiled) | {"_functions": {}}

    def that_goes_on(self, tuned: Mapping[str, np.ndarray], sweeps: np.ndarray | None = None) -> GraphStep:
        """Return a step whose chains begin with these entries of the carry, arrays (chain, ...); this one is unchanged.

        ``sweeps`` (chain,) are the sweeps of a draw with which they begin where they are chosen automatically. Both
        steps share what is compiled.
        """
        return self._copy(tuned=dict(tuned), first_sweeps=self.first_sweeps if sweeps is None else sweeps)

    def with_sweeps(self, sweeps_per_draw: int) -> GraphStep:
        """Return a step whose draws have so many sweeps; both share what is compiled."""
        return self._copy(sweeps_per_draw=sweeps_per_draw)

    def _copy(self, **changes) -> GraphStep:
        """Return a step with other attributes that shares all else."""
        step = object.__new__(type(self))
        step.__dict__ |= self.__dict__ | changes
        return step

    def __deepcopy__(self, memo) -> GraphStep:
        """Return a step that makes the draws that this one would make; both share the model and what is compiled."""
        step, state = self.that_goes_on(self.tuned), [field.name for field in fields(GraphStepState)]
        step.__dict__ |= deepcopy({name: x for name, x in self.__dict__.items() if name in state}, memo)
        return step

    def __copy__(self) -> GraphStep:
        return self.__deepcopy__({})  # two chains with one state would be no chains

    @staticmethod
    @abstractmethod
    def build_transition(model: pm.Model, vars: Sequence[Variable] | None, **options) -> Transition:
        """Build the transition that moves some variables of a model; options of the sampler are keyword arguments."""

    def _compile(self) -> None:
        """Compile the stages of the transition, unless that is done."""
        if not self._functions:
            with remembered():
                self._compile_stages()

    def _compile_stages(self) -> None:
        """Compile the stages, and run each once, at which their code is made."""
        # A process that was not forked has not yet told JAX of our operations, nor PyTensor of the precision.
        mode = with_our_kernels(compilation_mode(self._mode))
        with ONE_THREAD, without_traces(), pytensor.config.change_flags(floatX=self._dtype):
            # JAX knows all shapes when it compiles, and draws no random numbers of others.
            shapes = {name: np.shape(x) for name, x in self._point.items()} if self._uses_jax else None
            graph, functions = self.transition.graph(shapes), {}
            shared: dict[SharedVariable, None] = {}
            for name, stage in graph.stages.items():
                kind = (self._mode, type(mode.linker))
                how = {"mode": mode, "kind": kind} | self._compile_kwargs
                functions[name], of_stage = compiled(graph.rng, graph.inputs[1:], stage.outputs, **how)
                shared |= dict.fromkeys(of_stage)
        self._inputs = {v.name: v.dtype for v in graph.values}
        self._tuning_dtype = graph.tuning.dtype
        self._shared = [*shared]
        self._stages, self._functions = graph.stages, functions  # both at once, so that an interrupt leaves all or none
        # Code is made at the first call. We make that call before chains fork, so that they share the code.
        values, random = self._values(self._point), random_state(np.random.default_rng(0), self._uses_jax)
        tuning = np.asarray(0, self._tuning_dtype)
        with ONE_THREAD, self._settings(), telling_of_compilation(COMPILING):
            for function in self._functions.values():
                function(random, *values.values(), *self.carry.values(), tuning)

    def _run(self, name: str, values: dict[str, np.ndarray], tuning: np.ndarray) -> dict[str, np.ndarray]:
        """Run a stage of the transition, if it has it; this changes values and carry, and returns statistics."""
        if name not in self._functions:
            return {}
        stage, random = self._stages[name], self._jax_key if self._uses_jax else self.rng
        outputs = self._functions[name](random, *values.values(), *self.carry.values(), tuning)
        if stage.rng is not None:
            random, *outputs = outputs
        if self._uses_jax:
            self._jax_key = random
        else:
            self.rng, outputs = random, [_in_order(output) for output in outputs]
        outputs = iter(outputs)
        values |= {v.name: next(outputs) for v in stage.state}
        self.carry |= {name: next(outputs) for name in stage.carry}
        return stage.named_stats(outputs)

    def _settings(self) -> AbstractContextManager:
        """Return the context inside which the functions are compiled and called."""
        if self._uses_jax:
            return jax_settings()
        return without_threads_of_blas(self._rows, self.transition.multiplications)

    def _values(self, point: PointType) -> dict[str, np.ndarray]:
        """Return the values at a point in the types that the compiled functions take."""
        return {name: _in_order(point[name], dtype) for name, dtype in self._inputs.items()}

    @property
    def vars(self) -> list[Variable]:
        """Value variables of the step. Where ``pm.sample`` reads them, the step gets ready for it as well."""
        if call_in_pymc("sample"):
            self._prepare()
        return self._vars

    def _prepare(self) -> None:
        """Get ready for the ``pm.sample`` that is about to start: look at its arguments, warn, and compile.

        PyMC calls no method of a step before chains fork: it reads ``vars``, first of all and in the main process, and
        ``stats_dtypes``. So :attr:`vars` is where the step learns that it is about to be used. Chains in forked
        processes then share what is compiled here; and starts that do not fit, or more draws than memory holds, are
        found before anything else is done with them. By hand, a step compiles at its first draw.
        """
        self._call = call_of_sample() or self._call
        sizes = {v.name: self._point[v.name].nbytes for v in self._vars}
        latents = [] if self._warned else self.transition.latents
        self._warned |= check_call_of_sample(self.model, sizes, latents)
        self._compile()
        if self._call.searches and self.transition.search and not self._told:
            self._told = True
            logging.getLogger("pymc.gibbsnn").info(self.transition.search)

    def set_rng(self, rng) -> None:
        """Start a chain: a generator of its own and a fresh carry (PyMC 5)."""
        self._start(rng, tuning_steps())
        self.tune = True  # PyMC says when tuning ends

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        """Start a chain: a generator of its own and a fresh carry (PyMC 6)."""
        self._call = self._call._replace(draws=draws)
        self._start(rng, tune)
        self.tune = tune > 0

    def _start(self, rng, tune: int | None) -> None:
        """Start a chain of so many tuning steps; None if the step is called by hand and nobody says how many."""
        self.rng = get_random_generator(rng, copy=False)
        if self._uses_jax:
            refuse_jax_in_fork()
        self._jax_key = random_state(self.rng, jax=True) if self._uses_jax else None
        self.transition.check()
        take_threads_of_blas(most=blas_threads_of_fork())
        is_known = isinstance(self._mode.linker, NumbaLinker) and self.transition.rows is not None
        self._rows = len(evaluate(self.transition.rows)) if is_known else 0
        start = self.transition.start()
        chain = number_of_chain() or 0  # outside of pm.sample, the first
        start |= {name: np.asarray(x[chain], start[name].dtype) for name, x in self.tuned.items()}
        is_auto = self.sweeps_per_draw == AUTO
        sweeps = int(self.first_sweeps[chain % len(self.first_sweeps)]) if is_auto else self.sweeps_per_draw
        most = most_sweeps([self.transition])
        steps = (tune or 0) if is_auto and most > 1 else 0
        self.thinning = Thinning(steps, self._call.draws, self._call.chains, most, sweeps)
        self.carry = {name: _in_order(value) for name, value in start.items()}
        self._data = [(v, v.container.storage[0]) for v in self.transition.data]
        self._is_over, self._is_by_hand = False, tune is None
        self._left, self._seen = None, None
        self.steps, self.tune_steps = 0, max(1, self.transition.tune_steps if tune is None else tune)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Make one draw from a point of value variables, as PyMC asks of every step method.

        Raises
        ------
        FloatingPointError
            If the first draw of a chain, or the point where it starts, is not finite. If a later draw is not, the step
            warns instead, and this and all further draws are NaN: an error would lose all draws of all chains.
        RuntimeError
            If the data have changed since the chain began, because the chain keeps what it once computed from them.
        """
        if self._is_over:
            return point, [dict.fromkeys(self._stats, np.nan) | self.constants]
        self._check_data()
        failure = None
        try:
            new, stats = self._draw(point)
            reason = "" if math.isfinite(stats["lp"]) else f"its log density is {stats['lp']}"
        except ValueError as error:  # a matrix could not be factorised, a density is not defined
            if self.steps == 0 and (why := why_not_finite(self.model, point)):
                raise FloatingPointError(f"The first draw of a chain has failed. {why}") from error
            if not isinstance(error, np.linalg.LinAlgError | ParameterValueError):
                raise
            failure, reason = error, str(error).splitlines()[0].rstrip(".")
            if self.steps == 0:
                message = f"The first draw of a chain has failed: {reason}. {self._advice(failure)}"
                raise FloatingPointError(message.rstrip()) from error
        if reason and self.steps == 0:
            why = why_not_finite(self.model, point) or self._advice(failure)
            raise FloatingPointError(f"The first draw of a chain is not finite: {reason}. {why}".rstrip())
        if reason:
            message = (
                f"A chain has left the finite numbers at draw {self.steps}, warm-up included: {reason}. "
                f"From there on all its draws are NaN; those before are as they were drawn. {self._advice(failure)}"
            )
            warnings.warn(message.rstrip(), UserWarning, stacklevel=2)
            self._is_over = True
            new = {**point, **{v.name: np.full_like(point[v.name], np.nan) for v in self._vars}}
            stats = dict.fromkeys(self._stats, np.nan)
        self.steps += 1
        return new, [stats | self.constants]

    def _advice(self, failure: ValueError | None) -> str:
        """Say what to do where a draw has failed or, without an error, is not finite; empty if that is not known."""
        if self.transition.advice:
            return f"{self.transition.advice}."
        loses = isinstance(failure, np.linalg.LinAlgError) if failure else bool(self.transition.latents)
        return LOST_DIGITS if loses else ""

    def _check_data(self) -> None:
        """Raise RuntimeError if the data have changed since the chain began."""
        changed = [v for v, value in self._data if v.container.storage[0] is not value]
        changed = [v.name for v, value in self._data if v in changed and not np.array_equal(v.get_value(), value)]
        if changed:
            raise RuntimeError(
                f"The data {changed} have changed since this chain began, and the step keeps what it computed of them. "
                f"Start a chain on the data as they are now: step.set_rng(seed)."
            )

    def _draw(self, point: PointType) -> tuple[PointType, dict[str, float]]:
        """Make one draw from a point, and return it with its statistics."""
        self._compile()
        values = self._values(point)
        if self.steps == 0 and not all(np.isfinite(value).all() for value in values.values()):
            return point, dict.fromkeys(self._stats, np.nan)
        tuning = np.asarray(self.tune and max(0.0, 1 - self.steps / self.tune_steps), self._tuning_dtype)
        finds = self.steps == 0 and tuning > 0 and not self._is_by_hand and self.transition.find
        with uninterrupted() as hand_over_interrupt:
            if finds:
                rng = np.random.default_rng(self.rng.integers(2**63))
                with without_threads_of_blas(self._rows, 0):  # a search multiplies large matrices, whatever the network
                    start, carry = self.transition.find(point, rng)
                values, self.carry = self._values(start), self.carry | carry
            with self._settings():
                if not self._is_where_it_was(values):
                    self._run("begin", values, tuning)
                self._left, sweeps = None, self.thinning.sweeps
                for _ in range(sweeps):
                    stats = self._run("step", values, tuning)
                    if tuning > 0:
                        self._run("tune", values, tuning)
                    hand_over_interrupt()
                self._run("record", values, tuning)
            if self.thinning.steps < self.thinning.tune:
                self.thinning.add(np.append(self.transition.watch(values), stats["lp"])[None, None])
        if "begin" in self._functions:
            self._left, self._seen = {name: x.copy() for name, x in values.items()}, self._stored()
        new = {v.name: np.asarray(values[v.name], v.dtype) for v in self._vars}
        return {**point, **new}, {name: float((stats | {SWEEPS: sweeps})[name]) for name in self._stats}

    def _is_where_it_was(self, values: Mapping[str, np.ndarray]) -> bool:
        """Whether variables and data are as after the last draw, so that what the carry says of them still holds."""
        if self._left is None or not all(np.array_equal(x, self._left[name]) for name, x in values.items()):
            return False
        return self._seen is None or all(x is y for x, y in zip(self._stored(), self._seen, strict=True))

    def _stored(self) -> list[Any]:
        """Return what the data of the compiled functions hold now; ``pm.set_data`` puts other objects there."""
        return [v.container.storage[0] for v in self._shared]

    @staticmethod
    def _progressbar_config(n_chains: int = 1):
        density = TextColumn("{task.fields[lp]:0.1f}", table_column=Column("Log density", ratio=1))
        sweeps = TextColumn("{task.fields[sweeps_per_draw]:.0f}", table_column=Column("Sweeps per draw", ratio=1))
        return [density, sweeps], {name: [float("nan")] * n_chains for name in ("lp", SWEEPS)}

    @staticmethod
    def _make_progressbar_update_functions():
        return (lambda stats: {name: stats[name] for name in ("lp", SWEEPS)},)


# What help and the documentation show is the constructor's, not that of __new__.
GraphStep.__signature__ = Signature([*signature(GraphStep.__init__).parameters.values()][1:])  # type: ignore[attr-defined]


def _with_options(constructor: Signature, build: Signature) -> Signature:
    """Make the signature of a step method: ``vars``, then its own options, then the arguments that all steps share.

    Where the function that builds the transition takes any further arguments (``**kwargs``), so does the step.
    """
    _, vars_, *shared = [p for p in constructor.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    options = [p for p in build.parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    others = [p for p in build.parameters.values() if p.kind is Parameter.VAR_KEYWORD]
    return Signature([vars_, *options, *shared, *others])


def options_of(sampler: Callable[..., Transition]) -> Callable[[Callable], Callable]:
    """Make a decorator of :meth:`GraphStep.build_transition`, whose ``**options`` are those of a sampler's function.

    These, the keyword arguments of the sampler, then stand in its signature, before its own options.
    """
    of_sampler = [p for p in signature(sampler).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]

    def decorate(build: Callable) -> Callable:
        model, vars_, *own, _ = signature(build).parameters.values()
        build.__signature__ = Signature([model, vars_, *of_sampler, *own])  # type: ignore[attr-defined]
        return build

    return decorate


def _in_order(array: np.ndarray, dtype: str | None = None) -> np.ndarray:
    """Return an array in row-major order: Numba compiles a function anew for every order of its arguments in memory."""
    return np.asarray(array, dtype, order="C")

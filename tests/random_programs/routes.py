"""The ways through loopax, and what each of them must agree with."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytensor

import loopax
from loopax import DynamicShapeError, PaddedArray, jaxify
from tests.numba_backend.interpreted import interpreted, lowered
from tests.random_programs.oracles import Answer, Case, NotAProgram
from tests.random_programs.plain import PLAIN

# What has a length that only its values tell.
SHAPED_BY_VALUES = ("mask", "nonzero", "pytensor.scan", "loopax.scan", "write", "choose")


@dataclass(frozen=True)
class Verdict:
    """What came of one route.

    ``status``: right, wrong, refused, shape (a length that JAX cannot know), nothing (to compare), or
    differs (PyTensor from itself).
    """

    status: str
    what: str = ""

    @property
    def signature(self) -> str:
        """Equal for what is probably one fault."""
        return f"{self.status}: {self.what.splitlines()[0][:70] if self.what else ''}"


ROUTES: dict[str, Callable[[Case], Verdict]] = {}


def route(name: str) -> Callable[[Any], Any]:
    """Registers a function that gives (what was found, the answer, the dtypes)."""

    def register(run: Callable[[Case], tuple[list[Any], Answer, list[str] | None]]) -> Any:
        def judged(case: Case) -> Verdict:
            try:
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found, answer, dtypes = run(case)
            except NotAProgram as error:
                return Verdict("nothing", str(error))
            except Exception as error:
                shaped = any(case.program.features.get(k) for k in SHAPED_BY_VALUES)
                by_design = isinstance(error, DynamicShapeError) and shaped and "jax" in name
                text = f"{type(error).__name__}: {error}"
                if name.startswith("PyTensor's"):
                    return Verdict("nothing", text)
                return Verdict("shape" if by_design else "refused", text)
            fault = answer.fault(found, dtypes)
            if fault is None:
                return Verdict("right")
            return Verdict("differs" if name.startswith("PyTensor's") else "wrong", fault)

        ROUTES[name] = judged
        return judged

    return register


def _dtypes(variables: list[Any]) -> list[str]:
    return [v.type.dtype for v in variables]


def _static(case: Case) -> tuple[int, ...]:
    return tuple(k for k, x in enumerate(case.program.given) if x.makes_shapes)


def _arguments(case: Case) -> list[Any]:
    """Numbers that make shapes are Python's: a foreign jit has to hash them."""
    return [
        v.item() if x.makes_shapes else v
        for x, v in zip(case.program.given, case.values, strict=True)
    ]


def _arrays(found: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in found]


# -- JAX ---------------------------------------------------------------------------------------------


@route("jax")
def in_jax(case: Case) -> Any:
    answer, g = case.outputs, case.written
    return _arrays(jaxify(g.inputs, g.outputs)(*case.values)), answer, _dtypes(g.outputs)


@route("jax.jit")
def under_jit(case: Case) -> Any:
    answer, g = case.outputs, case.written
    f = jax.jit(jaxify(g.inputs, g.outputs), static_argnums=_static(case))
    return _arrays(f(*_arguments(case))), answer, _dtypes(g.outputs)


@route("jax.grad")
def grad_of_jax(case: Case) -> Any:
    answer = case.gradient
    f = jaxify(case.written.inputs, case.cost(case.written))
    found = jax.grad(f, argnums=tuple(case.wrt))(*_arguments(case))
    return _arrays(found), answer, [str(case.values[k].dtype) for k in case.wrt]


@route("pytensor.grad in jax")
def pytensor_grad_in_jax(case: Case) -> Any:
    return _pytensor_grad(case, "jax")


def _gradient_of_pytensor(case: Case) -> Answer:
    """What PyTensor's pullbacks give of the program, its loops included."""
    if "reference" in case.gradient.refused:
        raise NotAProgram(case.gradient.refused["reference"])
    return case.gradient


def _pytensor_grad(case: Case, backend: str) -> Any:
    answer, g = _gradient_of_pytensor(case), case.written
    gradients = case.gradients(g)
    found = jaxify(g.inputs, gradients, backend=backend)(*case.values)
    return _arrays(found), answer, _dtypes(gradients)


@route("jax.vmap")
def vmap_of_jax(case: Case) -> Any:
    f = jaxify(case.written.inputs, case.written.outputs)

    def members(x: Any) -> Any:
        """Of the traces of loops that stop, one for each row."""
        rows = range(len(case.rows))
        return (
            np.stack([np.asarray(x.member(k)) for k in rows]) if isinstance(x, PaddedArray) else x
        )

    def vectorized(axes: tuple[Any, ...]) -> Any:
        g = jax.vmap(f, in_axes=axes)
        return lambda *args: [members(x) for x in g(*args)]

    return _batched(case, vectorized)


@route("compiled function in jax")
def compiled_function_in_jax(case: Case) -> Any:
    answer, g = case.outputs, case.written
    try:
        f = pytensor.function(g.inputs, g.outputs, mode="FAST_COMPILE", on_unused_input="ignore")
    except Exception as error:
        raise NotAProgram(f"PyTensor refuses it: {error}") from error
    return _arrays(jaxify(f)(*case.values)), answer, _dtypes(g.outputs)


# -- Numba -------------------------------------------------------------------------------------------


@route("numba")
def in_numba(case: Case) -> Any:
    answer, g = case.outputs, case.written
    found = jaxify(g.inputs, g.outputs, backend="numba")(*case.values)
    return _arrays(found), answer, _dtypes(g.outputs)


@route("numba as Python")
def numba_as_python(case: Case) -> Any:
    """What the emitter writes, run without compiling."""
    answer, g = case.outputs, case.written
    if g.shared:
        raise NotAProgram("shared variables")
    run = interpreted(lowered(g.inputs, g.outputs), sized=bool(case.program.seed % 2))
    try:
        found = run(*[np.copy(x) for x in case.values])
    except NotImplementedError as error:
        if "pure-python" not in str(error):
            raise
        raise NotAProgram("an intrinsic of Numba's") from error
    return _arrays(found), answer, _dtypes(g.outputs)


@route("loopax.grad in numba")
def grad_of_numba(case: Case) -> Any:
    answer = _gradient_of_pytensor(case)
    f = jaxify(case.written.inputs, case.cost(case.written), backend="numba")
    found = loopax.grad(f, argnums=tuple(case.wrt))(*case.values)
    return _arrays(found), answer, [str(case.values[k].dtype) for k in case.wrt]


@route("pytensor.grad in numba")
def pytensor_grad_in_numba(case: Case) -> Any:
    return _pytensor_grad(case, "numba")


@route("loopax.vmap in numba")
def vmap_of_numba(case: Case) -> Any:
    f = jaxify(case.written.inputs, case.written.outputs, backend="numba")
    return _batched(case, lambda axes: loopax.vmap(f, in_axes=axes))


def _batched(case: Case, vectorized: Callable[[tuple[Any, ...]], Any]) -> Any:
    axes = tuple(None if x.makes_shapes else 0 for x in case.program.given)
    if not any(a == 0 for a in axes):
        raise NotAProgram("nothing to batch")
    answers = [row.outputs for row in case.rows]
    answer = Answer()
    answer.far = []
    try:
        for k in range(min(len(a.accepted) for a in answers)):
            columns = zip(*(a.accepted[k][1] for a in answers), strict=True)
            answer.add(answers[0].accepted[k][0], [np.stack(c) for c in columns])
        fars = [a.far or [np.full(x.shape, np.inf) for x in a.values] for a in answers]
        answer.far = [np.stack(c) for c in zip(*fars, strict=True)]
    except ValueError as error:
        raise NotAProgram(f"rows of several shapes: {error}") from error
    if all(a.rewritten is not None for a in answers):
        answer.rewritten = lambda: [
            np.stack(c) for c in zip(*(a.rewritten() for a in answers), strict=True)
        ]
    args = [
        np.stack([row.values[k] for row in case.rows]) if a == 0 else _arguments(case)[k]
        for k, a in enumerate(axes)
    ]
    return _arrays(vectorized(axes)(*args)), answer, _dtypes(case.written.outputs)


# -- state -------------------------------------------------------------------------------------------


def _updated(case: Case, backend: str) -> Any:
    g, answer = case.written, case.after
    if not g.updates:
        raise NotAProgram("no updates")
    try:
        pytensor.function(
            g.inputs, g.outputs, updates=g.updates, mode=PLAIN, on_unused_input="ignore"
        )
    except Exception as error:
        raise NotAProgram(f"PyTensor refuses it: {error}") from error
    f = jaxify(g.inputs, g.outputs, updates=g.updates, backend=backend)
    ctx, found = f.apply(f.init_context(), *case.values)
    names = [s.name for s in g.updates]
    found = [*found, *(ctx[n] for n in names)]
    return _arrays(found), answer, _dtypes([*g.outputs, *g.updates.values()])


@route("updates in jax")
def updates_in_jax(case: Case) -> Any:
    return _updated(case, "jax")


@route("updates in numba")
def updates_in_numba(case: Case) -> Any:
    return _updated(case, "numba")


# -- PyTensor itself ---------------------------------------------------------------------------------


@route("PyTensor's oracles")
def the_oracles(case: Case) -> Any:
    """Whether they agree with one another."""
    fault = case.outputs.disagreement()
    if fault:
        return [], _Says(fault), None
    return [], _Says(None), None


@route("PyTensor's gradients")
def the_gradients(case: Case) -> Any:
    return [], _Says(case.gradient.disagreement()), None


@route("PyTensor's NUMBA mode")
def in_pytensor_numba(case: Case) -> Any:
    return case.by_numba(), case.outputs, _dtypes(case.written.outputs)


@dataclass
class _Says:
    said: str | None

    def fault(self, found: Any, dtypes: Any) -> str | None:
        return self.said

"""Which parts of a jaxpr run as kernels, native on the CPU.

A part is a run of equations that follow one another, all of which can be read into the IR: nothing that
it needs comes after it begins, and nothing of it is needed before it ends. It has a loop in it, and is
faster as native code. A loop that cannot be read stays JAX's, and what is in its step, or in the
branches of a conditional, is looked through in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
from pytensor.graph.basic import Variable

from loopax.base.lock import TRACING
from loopax.base.upstream.jax import ClosedJaxpr, Jaxpr, Literal, Var, low_jaxpr, part_of
from loopax.kernels.cost import cost_of
from loopax.kernels.kernel import Kernel, Policy
from loopax.kernels.primitive import bind

_LOOPS = {"scan", "while"}
# Lines of a native source, of which Numba takes 5 to 10 ms each: up to so many with small arrays in locals,
# and with "auto" no program of more than so many. A function that is JAX's already is there after half a
# second: who asks for its Hessian once waits no longer than for XLA.
_LONGEST, _MOST_LINES = 300, 450


@dataclass(frozen=True)
class Reader:
    """How equations of a jaxpr are read into the IR.

    Parameters
    ----------
    read
        Variables of the IR for those of a jaxpr, with those that equations compute of them.
    type_of
        The type of a value of a jaxpr in the IR.
    refused
        What both raise where there is no rule, with what has none as its message.
    """

    read: Callable[[Iterable[Any], Mapping[Any, Variable]], dict[Any, Variable]]
    type_of: Callable[[Any], Any]
    refused: type[Exception]


_readers: list[Reader] = []


def register_reader(reader: Reader) -> None:
    """Make ``reader`` what reads jaxprs: the frontend's, which this folder does not import."""
    _readers[:] = [reader]


@dataclass(eq=False)
class Plan:
    """How the loops of a function run.

    Parameters
    ----------
    loops
        One of `LOOPS`.
    """

    loops: str
    remarks: dict[str, None] = field(default_factory=dict)  # what has become of each loop, and why

    def __repr__(self) -> str:  # in a jaxpr
        return self.loops

    def __post_init__(self) -> None:
        self._replaced: dict[Any, Any] = {}

    @property
    def reader(self) -> Reader:
        return _readers[0]

    def with_native_parts(self, jaxpr: Any) -> Any:
        """The closed jaxpr with kernels in the place of its loops."""
        if self.loops == "xla":
            return jaxpr
        with TRACING:
            if jaxpr not in self._replaced:
                low = low_jaxpr(jaxpr)
                self._replaced[jaxpr] = ClosedJaxpr(_Parts(self, low.jaxpr).replaced(), low.consts)
            return self._replaced[jaxpr]


class _Parts:
    """The equations of one jaxpr, and which of them are read into the IR together."""

    def __init__(self, plan: Plan, jaxpr: Jaxpr) -> None:
        self.plan = plan
        self.jaxpr = jaxpr

    def replaced(self) -> Jaxpr:
        equations: list[Any] = []
        for values, run in self._runs():
            kernel = None if values is None else self._kernel(run, values)
            if kernel is not None:
                equations.append(kernel)
            elif values is not None and len(run) > 1 and any(map(_has_loop, run)):
                equations += map(self._alone, run)
            else:
                equations += map(self._within, run)
        return self.jaxpr.replace(eqns=equations)

    def _runs(self) -> Iterator[tuple[dict[Any, Variable] | None, list[Any]]]:
        """The equations, as runs of those that can be read and of those that cannot.

        With the former are variables of the IR for what they read and compute, which None says of the
        latter. Each equation is read once, behind those before it.
        """
        values: dict[Any, Variable] | None = None
        run: list[Any] = []
        for eqn in self.jaxpr.eqns:
            read = self._read(eqn, values or {})
            if run and (read is None) != (values is None):
                yield values, run
                run, values = [], None
            run.append(eqn)
            if read is not None:
                values = {} if values is None else values
                values.update(read)
        if run:
            yield values, run

    def _alone(self, eqn: Any) -> Any:
        """A loop as a kernel by itself, where that is faster; another equation as it is."""
        values = self._read(eqn, {}) if _has_loop(eqn) else None
        kernel = None if values is None else self._kernel([eqn], values)
        return self._within(eqn) if kernel is None else kernel

    def _read(self, eqn: Any, known: Mapping[Any, Variable]) -> dict[Any, Variable] | None:
        """Variables of the IR for what an equation reads and computes; None where it cannot be read."""
        reader = self.plan.reader
        try:
            inputs = {
                v: known[v] if v in known else reader.type_of(v.aval)() for v in _read_by([eqn])
            }
            return reader.read([eqn], inputs)
        except reader.refused as refused:
            why = f"there is no native form of {refused}"
        except Exception as error:  # a function that JAX runs is never refused
            why = f"it cannot be read, {type(error).__name__}: {error}"
        if _is_loop(eqn):
            self._say(eqn, f"JAX's: {why}")
        return None

    def _kernel(self, run: Sequence[Any], values: Mapping[Any, Variable]) -> Any:
        """An equation that computes natively what a run does; None where that is slower, or impossible."""
        if not any(map(_has_loop, run)):
            return None
        read = _read_by(run)
        written = self._needed_after(run)
        part = part_of(self.jaxpr, read, written, run)
        cost = cost_of(part)
        loops = [eqn for eqn in run if _has_loop(eqn)]
        if self.plan.loops == "auto" and cost.saved(1) <= 0:
            for eqn in loops:
                self._say(eqn, f"JAX's: about {cost.in_words()}")
            return None
        kernel = self._made(part, values)
        why = _no_code(kernel)
        for eqn in loops:
            self._say(eqn, f"native, about {cost.in_words()}" if why is None else f"JAX's: {why}")
        if why is not None:
            return None
        # A call, as keys are arrays in a kernel.
        avals = [v.aval for v in read]
        called = jax.make_jaxpr(jax.jit(partial(_run_kernel, kernel, written)))(*avals)
        return called.jaxpr.eqns[0].replace(invars=read, outvars=written)

    def _made(self, part: Jaxpr, values: Mapping[Any, Variable]) -> Kernel:
        shapes = [self.plan.reader.type_of(v.aval).shape for v in part.outvars]
        name = "_".join(eqn.primitive.name for eqn in part.eqns if _has_loop(eqn))

        def in_jax(*args: Any) -> list[Any]:
            outs = jax.core.eval_jaxpr(part, (), *map(_as_declared, args, part.invars))
            return [_as_array(x) for x in outs]

        return Kernel(
            [values[v] for v in part.invars],
            [values[v] for v in part.outvars],
            in_jax,
            lambda given: shapes,
            name,
            Policy(
                checks="ignore",
                most_lines=_MOST_LINES if self.plan.loops == "auto" else float("inf"),
                longest=_LONGEST,
            ),
            canonical=True,
        )

    def _needed_after(self, run: Sequence[Any]) -> list[Var]:
        """What a run computes for others."""
        inside = set(map(id, run))
        others = [eqn for eqn in self.jaxpr.eqns if id(eqn) not in inside]
        wanted = {v for eqn in others for v in eqn.invars if isinstance(v, Var)}
        wanted |= {v for v in self.jaxpr.outvars if isinstance(v, Var)}
        return [v for eqn in run for v in eqn.outvars if v in wanted]

    def _within(self, eqn: Any) -> Any:
        """The equation with kernels in the jaxprs that are its parameters."""
        if not _has_loop(eqn) or eqn.primitive.name in _DERIVED:
            return eqn
        params = {name: self._inner(value) for name, value in eqn.params.items()}
        return eqn.replace(params=params)

    def _inner(self, value: Any) -> Any:
        if isinstance(value, tuple | list) and value and all(map(_is_jaxpr, value)):
            return type(value)(map(self._inner, value))
        if not _is_jaxpr(value):
            return value
        inner = _Parts(self.plan, getattr(value, "jaxpr", value)).replaced()
        return ClosedJaxpr(inner, value.consts) if hasattr(value, "consts") else inner

    def _say(self, eqn: Any, what: str) -> None:
        self.plan.remarks[f"{_described(eqn)}: {what}"] = None


def _no_code(kernel: Kernel) -> str | None:
    """Why there is no native code; None where there is."""
    try:
        return kernel.no_code
    except Exception as error:
        # PyTensor evaluates constants, and fails: 3.0 at an integer that does not fit into another type.
        return f"there is no native code, {type(error).__name__}: {error}"


def _run_kernel(kernel: Kernel, written: Sequence[Var], *args: Any) -> list[Any]:
    outs = bind(kernel, [_as_array(x) for x in args])
    return [_as_declared(x, v) for x, v in zip(outs, written, strict=True)]


def _as_array(x: Any) -> Any:
    """A random key as the integers that it holds."""
    return jax.random.key_data(x) if _is_key(jax.typeof(x)) else x


def _as_declared(x: Any, v: Var) -> Any:
    """What `_as_array` gives of a value of ``v`` as that value."""
    return jax.random.wrap_key_data(x, impl="threefry2x32") if _is_key(v.aval) else x


def _is_key(aval: Any) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)


# Their other parameters say what their jaxpr means to a transformation: it stays as it is.
_DERIVED = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}


def _read_by(run: Sequence[Any]) -> list[Var]:
    """The variables that a run reads and does not compute, in order."""
    computed = {v for eqn in run for v in eqn.outvars}
    read = (v for eqn in run for v in eqn.invars if not isinstance(v, Literal))
    return list(dict.fromkeys(v for v in read if v not in computed))


def _is_loop(eqn: Any) -> bool:
    return eqn.primitive.name in _LOOPS


def _is_jaxpr(value: Any) -> bool:
    return hasattr(getattr(value, "jaxpr", value), "eqns")


def _has_loop(eqn: Any) -> bool:
    """Whether an equation is a loop, or has one in a jaxpr among its parameters."""
    return _is_loop(eqn) or any(
        any(map(_has_loop, getattr(inner, "jaxpr", inner).eqns))
        for value in eqn.params.values()
        for inner in (value if isinstance(value, tuple | list) else [value])
        if _is_jaxpr(inner)
    )


def _described(eqn: Any) -> str:
    """A loop in words."""
    name = eqn.primitive.name
    if name == "scan":
        return f"scan of {eqn.params['length']} steps"
    return name

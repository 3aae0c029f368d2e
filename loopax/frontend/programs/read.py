"""Readers of `jaxify`'s inputs: a compiled function, a graph, inputs and outputs become a `Program`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeGuard

from pytensor.compile.executor import Function
from pytensor.compile.io import In
from pytensor.compile.rebuild import construct_function_ins_and_outs
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import as_tensor_variable

from loopax.base.errors import MissingInputError, describe
from loopax.base.upstream.pytensor import thaw
from loopax.frontend.loops.trees import flatten
from loopax.ir.program import Input, Program, Shared


def read_function(function: Function) -> Program:
    """The program of a compiled ``pytensor.function``, after its mode's rewrites.

    The user's graph is not read: rewriting changed its nodes in place.
    """
    maker = function.maker
    graph = thaw(maker.fgraph)
    inputs, shared, order = [], [], []
    for k, (spec, container) in enumerate(zip(maker.inputs, function.input_storage, strict=True)):
        variable = graph.inputs[k]
        if spec.shared or spec.implicit or spec.value is not None:
            # Also `In(v, value=shared)`: PyTensor reads the shared variable, and takes no argument.
            shared.append((k, Shared(variable, container.storage)))
        else:
            order.append(k)
            inputs.append(Input(variable, spec.name))
    shared_positions = [k for k, _ in shared]
    # Next values follow the returned outputs. The next value of an input that is an argument has no
    # effect.
    next_of = {k: j for k, j in maker.fgraph.update_mapping.items() if j in shared_positions}
    for k in reversed(range(len(maker.outputs), len(graph.outputs))):
        if k not in next_of:
            graph.remove_output(k)
    graph = _reordered(graph, [*order, *shared_positions])
    if maker.return_none:
        build: Any = _none
    else:
        build = _first if maker.unpack_single else list
    return Program(
        graph,
        tuple(inputs),
        tuple(s for _, s in shared),
        build,
        name=function.name or "program",
        updates=tuple(shared_positions.index(j) for _, j in sorted(next_of.items())),
    )


def read_graph(graph: FunctionGraph) -> Program:
    """The program of a `FunctionGraph`; one output is one value, several are a list."""
    cells = [v.container.storage if _is_shared(v) else [] for v in graph.inputs]
    program, _ = read_linked(graph, cells)
    return replace(program, build=_first) if len(graph.outputs) == 1 else program


def read_linked(
    graph: FunctionGraph, cells: Sequence[list[Any]]
) -> tuple[Program, list[list[Any]]]:
    """The program of a graph that PyTensor links: its outputs, updates among them, as a list.

    Parameters
    ----------
    graph
        The graph after its mode's rewrites.
    cells
        For each input a list whose only element is the value at a call. Shared variables are read
        there, not in their own containers: a copy of a function may have others.

    Returns
    -------
    The program, and the cells of its arguments, in order.
    """
    is_shared = [_is_shared(v) for v in graph.inputs]
    order = sorted(range(len(is_shared)), key=lambda k: is_shared[k])
    copy = _reordered(thaw(graph), order)
    n = is_shared.count(False)
    argument_positions, shared_positions = order[:n], order[n:]
    program = Program(
        copy,
        tuple(
            Input(copy.inputs[j], graph.inputs[k].name) for j, k in enumerate(argument_positions)
        ),
        tuple(Shared(v, cells[k]) for v, k in zip(copy.inputs[n:], shared_positions, strict=True)),
        list,
        name=getattr(graph, "name", None) or "program",
    )
    return program, [cells[k] for k in argument_positions]


# Variables and what takes their places, as `pytensor.function` takes them.
Replacements: TypeAlias = Mapping[Any, Any] | Iterable[tuple[Any, Any]]


def read_variables(
    inputs: object,
    outputs: object,
    updates: Replacements | None = None,
    givens: Replacements | None = None,
    name: str | None = None,
) -> Program:
    """The program of input variables (or `In`) and a pytree of outputs, as in ``pytensor.function``.

    Raises `MissingInputError` if the outputs need a variable that is not among the inputs;
    `TypeError` if something that should be a variable is not.
    """
    arguments: list[Any] = list(inputs) if isinstance(inputs, Sequence) else [inputs]
    specs = [v if isinstance(v, In) else In(v) for v in map(_checked, arguments)]
    if len({id(s.variable) for s in specs}) < len(specs):
        names = [_name(s.variable) for s in specs]
        raise MissingInputError(f"An input is listed twice among {names}: list each variable once.")
    leaves, tree = flatten(outputs)
    leaves = [_as_variable(v) for v in leaves]
    _refuse_missing(specs, leaves, updates, givens)
    if updates or givens or any(s.update is not None for s in specs) or _default_updates(leaves):
        # PyTensor's own reading of givens and updates, only where there are some: it clones node by
        # node, which takes as long as lowering does.
        wrapped, leaves = construct_function_ins_and_outs(
            specs, leaves, updates=updates, givens=givens, rebuild_strict=False
        )
    else:
        listed = {s.variable for s in specs}
        roots = graph_inputs(leaves, blockers=listed)
        wrapped = [
            *specs,
            *(In(v) for v in dict.fromkeys(roots) if _is_shared(v) and v not in listed),
        ]
    arguments = [w for w in wrapped if not _reads_shared(w)]
    shared_specs = [w for w in wrapped if _reads_shared(w)]
    updated = tuple(k for k, w in enumerate(shared_specs) if w.update is not None)
    graph = FunctionGraph(
        [w.variable for w in [*arguments, *shared_specs]],
        [*leaves, *(shared_specs[k].update for k in updated)],
        clone=True,
    )
    n = len(arguments)
    ins = [Input(v, w.name) for v, w in zip(graph.inputs[:n], arguments, strict=True)]
    shared = [
        Shared(v, _container(w).storage)
        for v, w in zip(graph.inputs[n:], shared_specs, strict=True)
    ]
    return Program(
        graph, tuple(ins), tuple(shared), tree.build, name=name or "program", updates=updated
    )


def _reads_shared(spec: In) -> bool:
    """Whether an input is a shared variable, or `In(v, value=shared)`, which stands for one."""
    return _is_shared(spec.variable) or spec.value is not None


def _container(spec: In) -> Any:
    source = spec.variable if _is_shared(spec.variable) else spec.value
    return getattr(source, "container", source)


def _is_shared(v: object) -> TypeGuard[SharedVariable]:
    return isinstance(v, SharedVariable)


def _default_updates(leaves: Sequence[Variable]) -> bool:
    """Whether a shared variable in the graph updates itself, as the generators of RandomStream do."""
    return any(_is_shared(v) and v.default_update is not None for v in graph_inputs(leaves))


def variable_of(v: Any) -> Any:
    """The variable of an `In`; anything else itself."""
    return v.variable if isinstance(v, In) else v


def _checked(v: object) -> Any:
    variable = variable_of(v)
    if _is_shared(variable):
        raise TypeError(
            f"The shared variable {variable} is listed as an input, but a program reads it at every "
            "call. Leave it out; to pass its value instead, replace it: jaxify([x], y, "
            "givens={shared: x})."
        )
    if isinstance(variable, Variable) and not isinstance(variable, Constant):
        return v
    raise TypeError(
        f"jaxify takes input variables, such as pt.vector('x') or In(pt.vector('x')); got "
        f"{v!r} of type {type(v).__name__}."
    )


def _as_variable(v: Any) -> Variable:
    if isinstance(v, Variable):
        return v
    try:
        return as_tensor_variable(v)
    except Exception as error:
        raise TypeError(
            f"An output must be a PyTensor variable (or a pytree of them); got {v!r} of type "
            f"{type(v).__name__}."
        ) from error


def _refuse_missing(
    specs: Sequence[In],
    leaves: Sequence[Variable],
    updates: Replacements | None,
    givens: Replacements | None,
) -> None:
    """Raise with the names of all missing inputs, while PyTensor would stop at the first."""
    pairs = givens.items() if isinstance(givens, dict) else (givens or ())
    replaced = {a for a, _ in pairs}
    next_values = [
        u for _, u in (updates.items() if isinstance(updates, dict) else (updates or ()))
    ]
    blockers = [*(s.variable for s in specs), *replaced]
    outs = [
        *leaves,
        *(v for v in next_values if isinstance(v, Variable)),
        *(b for _, b in pairs if isinstance(b, Variable)),
    ]
    missing = [
        v
        for v in graph_inputs(outs, blockers=blockers)
        if v.owner is None and v not in blockers and not isinstance(v, Constant | SharedVariable)
    ]
    if missing:
        listed = "; ".join(describe(v) for v in dict.fromkeys(missing))
        draws = ", ".join(_name(s.variable) for s in specs if s.variable.owner is not None)
        computed = (
            f" Of the inputs, {draws} are computed from others, as the random variables of a PyMC model "
            "are; its log-density is a function of the value variables: jaxify(model), or "
            "jaxify(model.value_vars, model.logp())."
        )
        raise MissingInputError(
            f"The outputs need variables that are not among the inputs: {listed}. Add them to the "
            f"list of inputs, or give them a value with `givens`.{computed if draws else ''}"
        )


def _reordered(graph: FunctionGraph, order: list[int]) -> FunctionGraph:
    return (
        FunctionGraph([graph.inputs[k] for k in order], list(graph.outputs), clone=False)
        if order != list(range(len(order)))
        else graph
    )


def _name(v: Variable) -> str:
    return v.name or str(v)


def _first(leaves: Sequence[Any]) -> Any:
    return leaves[0]


def _none(leaves: object) -> None:
    return None

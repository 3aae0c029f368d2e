"""``Scan`` in PyTensor's Numba mode: a loop that calls its body as a function."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.dispatch.basic import register_funcify_and_cache_key
from pytensor.tensor.type import TensorType

from loopax.ir import Scan, ScanArgs
from loopax.ir.shapes import trace_shapes
from loopax.ir.trace import stacked
from loopax.numba_backend.emit.literals import dtype_name
from loopax.numba_backend.emit.source import Source, tuple_of
from loopax.numba_backend.pytensor_mode.conversions import converted, converted_body, raise_if


@register_funcify_and_cache_key(Scan)
def scan_conversion(op: Scan, node: Any = None, **kwargs: Any) -> Any:
    """`loopax.ir.run_scan`, with the rows of a trace in a buffer made by the first step."""
    xs, states, ys = ([f"{a}{k}" for k in range(n)] for a, n in _counts(op))
    consts = [f"c{k}" for k in range(op.n_consts)]
    tensor = [isinstance(y.type, TensorType) for y in op.outs.ys]
    source = Source("scan", ["n_steps", *xs, *states, *consts])
    source.line("n = n_steps.item()")
    raise_if(source, "n < 0", f"{op} was asked for a negative number of steps: it takes 0 or more.")
    for k, x in enumerate(xs):
        message = f"Sequence {k} of {op} does not have one row for each step."
        raise_if(source, f"len({x}) != n", message)
    for s in states:
        source.line(f"{s} = deepcopy({s})")

    rows = [_item(x, "i", r.type) for x, r in zip(xs, op.args.rows, strict=True)]
    call = f"step({', '.join(['np.array(i)', *rows, *states, *consts])})"
    if not all(tensor):
        source.line("i = 0")
    for k, (y, var) in enumerate(zip(ys, op.outs.ys, strict=True)):
        if tensor[k]:
            shape = tuple_of(["0"] * (var.type.ndim + 1))
            source.line(f"all_{y} = np.empty({shape}, dtype={dtype_name(var.type.dtype)})")
        else:  # never called: it tells Numba the type of the elements
            source.line(f"all_{y} = [{call}[{op.n_states + k}] for _ in range(0)]")
    source.line("done = 0")
    source.line("stopped = False")
    with source.block("while done < n and not stopped:"):
        source.line(f"i = {'n - 1 - done' if op.options.reverse else 'done'}")
        outs = [*states, *ys, *["stop"] * op.stops]
        source.line(f"{', '.join(outs)}, = {call}" if outs else call)
        for k, y in enumerate(ys):
            if tensor[k]:
                _write_row(source, op, y, op.outs.ys[k])
            else:
                source.line(f"all_{y}.append(deepcopy({y}))")
        if op.stops:
            source.line("stopped = stop.item()")
        source.line("done += 1")

    shapes, parts = _zero_step_shapes(op)
    parts["step"] = converted_body(op.fgraph)
    with source.block("if done == 0:"):
        source.line("pass")
        if "shapes" in parts:
            source.line(f"dims = shapes({', '.join([*xs, *states, *consts])})")
        for k, y in enumerate(ys):
            if tensor[k]:
                shape = tuple_of(["0", *shapes[k]])
                source.line(
                    f"all_{y} = np.empty({shape}, dtype={dtype_name(op.outs.ys[k].type.dtype)})"
                )
    for k, y in enumerate(ys):
        if not tensor[k] and op.options.reverse:
            source.line(f"all_{y}.reverse()")
        elif (
            tensor[k] and op.stops
        ):  # rows in the order of the steps, of a buffer that may be longer
            back = "[::-1]" if op.options.reverse else ""
            source.line(f"all_{y} = all_{y}[:done]{back}.copy()")
    finals = [f"deepcopy({s})" for s in states]
    ended = ["np.array(done)", "np.array(stopped)"] if op.stops else []
    results = [*finals, *[f"all_{y}" for y in ys], *ended]
    source.line(f"return {results[0] if len(results) == 1 else tuple_of(results)}")
    return converted(source, parts)


def _counts(op: Scan) -> list[tuple[str, int]]:
    return [("x", op.n_seqs), ("s", op.n_states), ("y", op.n_ys)]


def _item(x: str, i: str, row: Any) -> str:
    """Row ``i`` of a sequence, as an array where it is a scalar."""
    return f"np.array({x}[{i}])" if isinstance(row, TensorType) and not row.ndim else f"{x}[{i}]"


def _write_row(source: Source, op: Scan, y: str, row: Any) -> None:
    """``y`` into its buffer, which the first row makes, and which grows where the loop can stop."""
    shape = "" if not row.type.ndim else f" + {y}.shape"
    empty = f"np.empty(({{n}},){shape}, dtype={dtype_name(row.type.dtype)})"
    with source.block("if done == 0:"):
        source.line(f"all_{y} = {empty.format(n='min(n, 16)' if op.stops else 'n')}")
    if row.type.ndim:
        message = f"The rows of a trace of {op} differ in shape: pad them to one."
        raise_if(source, f"{y}.shape != all_{y}.shape[1:]", message)
    if op.stops:
        with source.block(f"if done == len(all_{y}):"):
            source.line(f"more = {empty.format(n='min(n, 2 * done)')}")
            with source.block("for k in range(done):"):
                source.line(f"more[k] = all_{y}[k]")
            source.line(f"all_{y} = more")
    # A loop that stops has its rows in the order of the steps until it is known how many there are.
    at = "done" if op.stops else "i"
    source.line(f"all_{y}[{at}] = {y}" + ("" if row.type.ndim else ".item()"))


def _zero_step_shapes(op: Scan) -> tuple[list[list[str]], dict[str, Any]]:
    """The trailing shapes of empty traces, as expressions, and the function they may need."""
    inner = op.args
    outer = ScanArgs(
        pt.constant(0, dtype="int64"),
        [stacked(r.type)() for r in inner.rows],
        [s.type() for s in inner.states],
        [c.type() for c in inner.consts],
    )
    shapes = ScanArgs(
        (),
        *[
            [tuple(x.shape) if isinstance(x.type, TensorType) else None for x in group]
            for group in outer[1:]
        ],
    )
    found, dims = [], []
    for y, shape in zip(op.outs.ys, trace_shapes(op, outer, shapes), strict=True):
        if shape is None:
            found.append([str(n or 0) for n in getattr(y.type, "shape", ())])
            continue
        found.append([])
        for n, dim in zip(y.type.shape, shape, strict=True):
            if n is not None:
                found[-1].append(str(n))
            else:
                found[-1].append(f"dims[{len(dims)}].item()")
                dims.append(dim)
    if not dims:
        return found, {}
    graph = FunctionGraph(outer.flat()[1:], dims, clone=True)
    return found, {"shapes": converted_body(graph)}

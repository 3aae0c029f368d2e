"""Loops, branches and calls written out: what a program computes without any loop in its graph.

`Flat` runs the text of a program with functions of its own in the place of `pytensor.scan`,
`loopax.scan` and the others: Python loops over the rows, which call the step once for each. How many steps
a loop takes, and which branch is taken, is asked of the values that the inputs have. The gradient of such a
graph owes nothing to a loop's.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import zero_grad
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Cast
from pytensor.scan.utils import until
from pytensor.tensor.elemwise import Elemwise

from tests.random_programs.answers import NotAProgram

LONGEST = 60  # steps


class TooLong(Exception):
    """A loop that does not end soon: no program for us."""


class Values:
    """The values of variables, each computed once, node by node with the ops' own ``perform``.

    ``noise`` is called with each node and its values, and may change them.
    """

    def __init__(self, noise: Callable[[Any, list[Any]], list[Any]] | None = None) -> None:
        self.known: dict[Any, Any] = {}
        self.noise = noise

    def __getitem__(self, var: Any) -> Any:
        for node in self._unknown(var):
            outputs = self._performed(node, [self._at(v) for v in node.inputs])
            self.known.update(zip(node.outputs, outputs, strict=True))
        return self._at(var)

    def floats(self) -> Iterator[np.ndarray]:
        """All float arrays that are known by now."""
        arrays = (x for x in self.known.values() if isinstance(x, np.ndarray))
        return (x for x in arrays if x.dtype.kind == "f")

    def _performed(self, node: Any, inputs: list[Any]) -> list[Any]:
        op = node.op
        if isinstance(op, OpFromGraph):
            inner = Values(self.noise)
            inner.known.update(zip(op.fgraph.inputs, inputs, strict=True))
            return [inner[v] for v in op.fgraph.outputs]
        destroyed = {i for positions in op.destroy_map.values() for i in positions}
        given = [deepcopy(x) if i in destroyed else x for i, x in enumerate(inputs)]
        cells: list[list[Any]] = [[None] for _ in node.outputs]
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, Cast):
            _refuse_what_does_not_fit(given[0], node.outputs[0].type.dtype)
        op.prepare_node(node, storage_map={}, compute_map={}, impl="py")
        op.perform(node, given, cells)
        # A ufunc of 0-d arrays gives a NumPy scalar. The dtype is left as it came: what a linker does.
        outputs = [np.asarray(c[0]) if isinstance(c[0], np.generic) else c[0] for c in cells]
        return outputs if self.noise is None else self.noise(node, outputs)

    def _at(self, var: Any) -> Any:
        if var in self.known:
            return self.known[var]
        if isinstance(var, Constant):
            return var.data
        return self.known.setdefault(var, var.get_value())  # shared

    def _unknown(self, var: Any) -> Iterator[Any]:
        """The nodes that ``var`` wants computed, in order."""
        done: set[Any] = set()
        stack = [var]
        while stack:
            v = stack[-1]
            if v in self.known or v.owner is None or v.owner in done:
                stack.pop()
                continue
            missing = [
                w
                for w in v.owner.inputs
                if w not in self.known and w.owner is not None and w.owner not in done
            ]
            if missing:
                stack += missing
            else:
                stack.pop()
                done.add(v.owner)
                yield v.owner


def _refuse_what_does_not_fit(x: np.ndarray, dtype: str) -> None:
    """A float as an integer that cannot hold it is for each machine to say."""
    if x.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        if not ((x > float(limits.min) - 1) & (x < float(limits.max) + 1)).all():
            raise NotAProgram(f"a {x.dtype} that does not fit into {dtype}")


class Flat:
    """The namespace in which a program has no loops, with the values of what is in it."""

    def __init__(self) -> None:
        self.values = Values()

    def number(self, x: Any) -> Any:
        return self.values[x].item() if isinstance(x, Variable) else np.asarray(x).item()

    # -- pytensor

    def scan(
        self,
        fn: Callable[..., Any],
        sequences: Sequence[Any] = (),
        outputs_info: Sequence[Any] = (),
        non_sequences: Sequence[Any] = (),
        n_steps: Any = None,
        truncate_gradient: int = -1,
        go_backwards: bool = False,
        return_updates: bool = False,
        return_list: bool = False,
        strict: bool = False,
    ) -> Any:
        assert not return_updates
        rows: list[Any] = []  # of each argument: its tensor, where it is read first, and the step
        lengths = []
        for s in sequences:
            taps = s["taps"] if isinstance(s, dict) else [0]
            x = pt.as_tensor(s["input"] if isinstance(s, dict) else s)
            first, last = min(0, *taps), max(0, *taps)
            n = self.length(x) - last + first
            lengths.append(n)
            # Each tap is a slice of its own, and turned on its own.
            step = -1 if go_backwards else 1
            rows += [(x, t - first + (n - 1 if go_backwards else 0), step) for t in taps]
        steps = min(lengths) if n_steps is None else self.number(n_steps)
        states: list[Any] = []
        for info in outputs_info:
            if info is None:
                states.append(None)
            elif isinstance(info, dict):
                taps = info.get("taps", [-1])
                initial = pt.as_tensor(info["initial"])
                back = -min(taps)
                past = [initial[k] for k in range(back)] if taps != [-1] else [initial]
                states.append((taps, past))
            else:
                states.append(([-1], [pt.as_tensor(info)]))
        emitted: list[list[Any]] = []
        for i in range(self.bounded(steps)):
            args = [x[at + step * i] for x, at, step in rows]
            for state in states:
                if state is not None:
                    args += [state[1][len(state[1]) + t] for t in state[0]]
            outs = fn(*args, *non_sequences)
            stop = None
            if isinstance(outs, tuple) and outs and isinstance(outs[-1], until):
                *outs, stop = outs
                outs = outs[0] if len(outs) == 1 and isinstance(outs[0], list | tuple) else outs
            outs = [*outs] if isinstance(outs, list | tuple) else [outs]
            if outs and isinstance(outs[-1], until):
                stop = outs.pop()
            outs = [pt.as_tensor(y) for y in outs]
            emitted.append(outs)
            for y, state in zip(outs, states or [None] * len(outs), strict=False):
                if state is not None:
                    state[1].append(y)
            if stop is not None and self.number(stop.condition):
                break
        done = len(emitted)
        if truncate_gradient != -1:
            raise TooLong("what is cut is PyTensor's to say")
        traces = [pt.stack(list(t)) for t in zip(*emitted, strict=True)] if done else None
        if traces is None:
            raise TooLong("no step: its types are PyTensor's to say")
        return traces[0] if len(traces) == 1 and not return_list else traces

    # -- loopax

    def loopax_scan(
        self,
        step: Callable[[Any, Any], Any],
        init: Any,
        xs: Any = None,
        length: Any = None,
        *,
        reverse: bool = False,
        checkpoint: Any = None,
        truncate_gradient: int = -1,
        **_: Any,
    ) -> Any:
        xs = jax.tree.map(pt.as_tensor, xs, is_leaf=_is_variable)
        steps = self.steps(xs, length)
        carry = jax.tree.map(pt.as_tensor, init, is_leaf=_is_variable)
        ys, stopped, stops = [], False, False
        order = range(self.bounded(steps))
        for n, i in enumerate(reversed(order) if reverse else order):
            row = jax.tree.map(lambda x, i=i: x[i], xs, is_leaf=_is_variable)
            outs = step(carry, row)
            stops = len(outs) == 3
            carry, y = outs[0], outs[1]
            if truncate_gradient != -1 and n < steps - truncate_gradient:
                carry, y = (jax.tree.map(_cut, t, is_leaf=_is_variable) for t in (carry, y))
            ys.append(y)
            if stops and self.number(outs[2]):
                stopped = True
                break
        if not ys:
            raise TooLong("no step: the types of its rows are not known")
        if reverse:
            ys.reverse()
        trace = jax.tree.map(lambda *rows: pt.stack(rows), *ys, is_leaf=_is_variable)
        if stops:
            return carry, trace, pt.constant(np.asarray(stopped))
        return carry, trace

    def map(self, f: Callable[[Any], Any], xs: Any, length: Any = None, **_: Any) -> Any:
        return self.loopax_scan(lambda c, x: (c, f(x)), (), xs, length)[1]

    def reduce(self, f: Any, init: Any, xs: Any = None, length: Any = None, **options: Any) -> Any:
        return self.loopax_scan(lambda c, x: (f(c, x), pt.zeros(())), init, xs, length, **options)[
            0
        ]

    def fori_loop(self, lo: Any, hi: Any, body: Any, init: Any, **_: Any) -> Any:
        carry = init
        for i in range(self.number(lo), self.number(lo) + self.bounded(self.number(hi - lo))):
            carry = body(pt.constant(np.int64(i)), carry)
        return carry

    def while_loop(
        self, cond: Any, body: Any, init: Any, max_steps: Any = None, checkpoint: Any = None
    ) -> Any:
        most = LONGEST if max_steps is None else self.number(max_steps)
        carry, n = init, 0
        while n < most and self.number(cond(carry)):
            carry, n = body(carry), n + 1
            self.bounded(n + 1)
        return carry

    def cond(self, pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
        return (true_fn if self.number(pred) else false_fn)(*operands)

    # -- calls

    def ifelse(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return then if self.number(condition) else otherwise

    def call(self, inputs: Sequence[Any], outputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        from pytensor.graph.replace import clone_replace

        def called(*args: Any) -> Any:
            actual = clone_replace(list(outputs), dict(zip(inputs, args, strict=True)))
            return actual[0] if len(actual) == 1 else actual

        return called

    # -- sizes

    def length(self, x: Any) -> int:
        return len(self.values[x])

    def steps(self, xs: Any, length: Any) -> int:
        if length is not None:
            return self.number(length)
        return self.length(jax.tree.leaves(xs, is_leaf=_is_variable)[0])

    def bounded(self, steps: int) -> int:
        if steps > LONGEST:
            raise TooLong(steps)
        return max(steps, 0)

    def namespace(self) -> dict[str, Any]:
        import pytensor
        from pytensor import sparse, typed_list

        loops = SimpleNamespace(
            scan=self.loopax_scan,
            **{n: getattr(self, n) for n in ("map", "reduce", "fori_loop", "while_loop", "cond")},
        )
        mine = SimpleNamespace(scan=self.scan, shared=pytensor.shared, grad=pytensor.grad)
        return {
            "pytensor": mine,
            "loopax": loops,
            "ifelse": self.ifelse,
            "OpFromGraph": self.call,
            "sparse": sparse,
            "typed_list": typed_list,
            "until": until,
        }


def _is_variable(x: Any) -> bool:
    return isinstance(x, Variable)


def _cut(x: Any) -> Any:
    return zero_grad(x) if x.type.dtype.startswith("float") else x

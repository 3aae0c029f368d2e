"""Every record is true: what it says of an op's rows, lengths and algebra holds in numbers.

The ops and their arguments are those of the table of all ops (`tests.every_op`).
"""

import numpy as np
import pytensor
import pytest
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, applys_between
from pytensor.tensor.type import DenseTensorType

from loopax.facts import facts_of, record
from loopax.facts.elementwise import function_of
from loopax.facts.linearity import zero_groups_of
from loopax.ir.ops.inner_graph_op import core_of
from tests.every_op import page
from tests.every_op.cells import Subject
from tests.every_op.record import Example
from tests.support.compare import FAST_COMPILE

OPS = {
    f"{family.TITLE}: {name}": (family, name)
    for family, name, cls in page.ops()
    if any(base in record._records for base in cls.__mro__)
}
RNG = np.random.default_rng(11)


def nodes(case):
    """The op's nodes, where all that they read and make is dense arrays, with functions and values."""
    family, name = OPS[case]
    program = family.EXAMPLES[name]()
    subject = Subject(program if isinstance(program, Example) else Example(program))
    for node in applys_between(subject.inputs, subject.outputs):
        variables = [*node.inputs, node.outputs[0]]
        dense = all(isinstance(v.type, DenseTensorType) for v in variables)
        classes = {type(op).__name__ for op in (node.op, function_of(node.op), core_of(node.op))}
        is_known = facts_of(node.op) is not record.UNKNOWN and len(node.outputs) == 1
        if not (dense and is_known and name in classes):
            continue
        given = [v for v in ancestors(node.inputs) if v in subject.inputs]
        at = [subject.values[subject.inputs.index(v)] for v in given]
        options = {"mode": FAST_COMPILE, "on_unused_input": "ignore"}
        values = pytensor.function(given, node.inputs, **options)(*at)
        roots = [v if isinstance(v, Constant) else v.type() for v in node.inputs]
        free = [v for v in roots if not isinstance(v, Constant)]
        f = pytensor.function(free, node.op.make_node(*roots).outputs[0], **options)
        kept = [k for k, v in enumerate(roots) if not isinstance(v, Constant)]
        yield node, lambda xs, f=f, kept=kept: f(*(xs[k] for k in kept)), values, kept


def with_value(values, k, x):
    return [x if j == k else v for j, v in enumerate(values)]


def noise_like(x):
    return np.asarray(RNG.uniform(0.2, 0.8, np.shape(x))).astype(x.dtype)


def tried(f, xs):
    """The result, None where the op refuses these numbers."""
    try:
        with np.errstate(all="ignore"):
            return f(xs)
    except Exception:
        return None


def check_axes(node, f, values, kept, out):
    axes = facts_of(node.op).axes(node)
    for k, own in enumerate(axes or ()):
        for along, axis in enumerate(own):
            x = values[k]
            if axis is None or k not in kept or np.shape(x)[axis] < 2 or x.dtype.kind != "f":
                continue
            moved = noise_like(x)
            at = (slice(None),) * axis + (0,)
            moved[at] = x[at]
            new = tried(f, with_value(values, k, moved))
            if new is not None:
                rows = [np.take(y, 0, along) for y in (new, out)]
                np.testing.assert_array_equal(*rows, err_msg=f"{node.op}, input {k}, axis {axis}")
                yield "axes"


def check_sizes(node, f, values, kept, out):
    facts = facts_of(node.op)
    for x, own in zip(values, (facts.sizes or facts.axes)(node) or (), strict=False):
        for along, axis in enumerate(own):
            if axis is not None and np.shape(x)[axis] != 1:
                assert out.shape[along] == np.shape(x)[axis]
                yield "sizes"


def check_linear(node, f, values, kept, out):
    for group in facts_of(node.op).linear(node):
        if not all(k in kept and values[k].dtype.kind == "f" for k in group):
            continue
        x, y = ([noise_like(values[k]) for k in group] for _ in range(2))

        def at(parts, group=group):
            new = dict(zip(group, parts, strict=True))
            return tried(f, [new.get(k, v) for k, v in enumerate(values)])

        both = at([2 * a - 3 * b for a, b in zip(x, y, strict=True)])
        ones = [at(x), at(y)]
        if both is not None and all(v is not None for v in ones):
            combined = 2 * ones[0] - 3 * ones[1]
            np.testing.assert_allclose(both, combined, 1e-5, 1e-6, err_msg=str(node.op))
            yield "linear"


def check_zero(node, f, values, kept, out):
    for group in zero_groups_of(node):
        if all(k in kept and values[k].dtype.kind == "f" for k in group):
            zeros = [np.zeros_like(v) if k in group else v for k, v in enumerate(values)]
            if np.isfinite(out).all() and (new := tried(f, zeros)) is not None:
                assert not np.nan_to_num(new).any(), node.op
                yield "zero"


def check_behind(node, f, values, kept, out):
    behind = facts_of(node.op).behind(node, 1)
    if behind is None or kept != [0] or len(values) > 1:
        return
    other = np.flip(values[0], -1) if np.ndim(values[0]) else values[0]
    stack = np.stack([values[0], other])
    batch = pytensor.shared(stack, shape=(None,) * stack.ndim)
    result = pytensor.function([], behind(batch), mode=FAST_COMPILE)()
    np.testing.assert_allclose(result, np.stack([out, f([other])]), 1e-6, err_msg=str(node.op))
    yield "behind"


CHECKS = [check_axes, check_sizes, check_linear, check_zero, check_behind]


@pytest.mark.parametrize("case", OPS)
def test_what_a_record_says_holds(case):
    checked = 0
    for node, f, values, kept in nodes(case):
        out = np.asarray(f(values))
        checked += sum(1 for check in CHECKS for _ in check(node, f, values, kept, out))
    if not checked:
        pytest.skip("its record says nothing that can be tried")

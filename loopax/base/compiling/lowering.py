"""Lowering of emitted functions to LLVM.

Numba allocates a stack slot for each local that more than one block uses, and for the descriptor of
an array (seven numbers and pointers) wherever an element is read. LLVM removes these again, in up to
half of its time. Here a local that is assigned once is an SSA value wherever it is used, and elements
are addressed through the fields of their array's descriptor.

Numba also promises LLVM that sums, differences and products of signed integers do not wrap around
(``nsw``), so that ``i + 1`` is never an index from the end. For numbers that the user compares that gives
wrong answers: LLVM simplifies ``x * x < 0`` to False. Here only indices carry the promise.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import Any

from numba import types

from loopax.base.compiling.libraries import InnerLibrary
from loopax.base.upstream.numba import (
    Lower,
    NativeLowering,
    Signature,
    cgutils,
    compiler,
    compute_cfg_from_blocks,
    ir,
    must_use_alloca,
    numba_ir,
    register_pass,
)

# Operators by which a signed integer may wrap around.
_WRAPPING = {operator.add, operator.sub, operator.mul}


class LowerEmitted(Lower):  # type: ignore[misc]  # Numba has no types
    """Numba's lowering with fewer stack slots."""

    def _find_singly_assigned_variable(self) -> None:
        super()._find_singly_assigned_variable()
        values = values_once(self.func_ir.blocks)
        # Numba may delete a local twice: a stack slot is null the second time.
        self._singly_assigned_vars |= {
            name
            for name, deleted_once in values.items()
            if deleted_once or not self._counts_references(name)
        }

    def _counts_references(self, name: str) -> bool:
        model: Any = self.context.data_model_manager[self.typeof(name)]
        return bool(model.contains_nrt_meminfo())

    def lower_function_body(self) -> Any:
        self._indices = used_as_indices(self.func_ir.blocks)
        return super().lower_function_body()

    def lower_assign(self, type_: types.Type, statement: numba_ir.Assign) -> Any:
        value = super().lower_assign(type_, statement)
        # For an operator of integers Numba emits one instruction, with the type of the operands.
        if (
            _is_arithmetic(statement.value)
            and statement.target.name not in self._indices
            and "nsw" in getattr(value, "flags", ())
        ):
            value.flags.remove("nsw")
        return value

    def lower_getitem(
        self,
        type_: types.Type,
        expression: numba_ir.Expr,
        array: numba_ir.Var,
        index: numba_ir.Var,
        signature: Signature,
    ) -> Any:
        address = self._element(array, index, signature)
        if address is None:
            return super().lower_getitem(type_, expression, array, index, signature)
        declared = signature.args[0]
        element = self.context.unpack_value(
            self.builder, declared.dtype, address, align=_alignment(declared)
        )
        return self.context.cast(self.builder, element, signature.return_type, type_)

    def lower_setitem(
        self, array: numba_ir.Var, index: numba_ir.Var, value: numba_ir.Var, signature: Signature
    ) -> Any:
        address = self._element(array, index, signature)
        declared, _, value_type = signature.args
        if address is None or not _is_number(value_type):
            return super().lower_setitem(array, index, value, signature)
        element = self.context.cast(
            self.builder, self._cast_var(value, value_type), value_type, declared.dtype
        )
        self.context.pack_value(
            self.builder, declared.dtype, element, address, align=_alignment(declared)
        )

    def _element(self, array: numba_ir.Var, index: numba_ir.Var, signature: Signature) -> Any:
        """The address of an array's element at integer indices; None for any other expression."""
        declared, index_type = signature.args[:2]
        kinds = index_type.types if isinstance(index_type, types.BaseTuple) else (index_type,)
        if (
            not isinstance(declared, types.Array)
            or self.typeof(array.name) != declared
            or not _is_number(declared.dtype)
            or len(kinds) != declared.ndim
            or not all(isinstance(kind, types.Integer) for kind in kinds)
            or self.context.enable_boundscheck
        ):
            return None
        builder, descriptor = self.builder, self.loadvar(array.name)
        model: Any = self.context.data_model_manager[declared]

        def lengths(field: str) -> Any:
            packed = builder.extract_value(descriptor, model.get_field_position(field))
            return cgutils.unpack_tuple(builder, packed, declared.ndim)

        index_value = self._cast_var(index, index_type)
        values = (
            cgutils.unpack_tuple(builder, index_value)
            if isinstance(index_type, types.BaseTuple)
            else [index_value]
        )
        shape = lengths("shape")
        indices = [
            self._from_the_end(kind, value, n)
            for kind, value, n in zip(kinds, values, shape, strict=True)
        ]
        data = builder.extract_value(descriptor, model.get_field_position("data"))
        return cgutils.get_item_pointer2(
            self.context, builder, data, shape, lengths("strides"), declared.layout, indices
        )

    def _from_the_end(self, kind: types.Integer, index: ir.Value, n: ir.Value) -> Any:
        """The offset of an index, which counts from the end where it is below 0."""
        if not kind.signed:
            return self.context.cast(self.builder, index, kind, types.uintp)
        index = self.context.cast(self.builder, index, kind, types.intp)
        if isinstance(getattr(index, "constant", None), int) and index.constant >= 0:
            return index
        is_below = self.builder.icmp_signed("<", index, index.type(0))
        return self.builder.select(is_below, self.builder.add(index, n), index)


def values_once(blocks: dict[int, Any]) -> dict[str, bool]:
    """Locals with one assignment, which dominates all uses and is lowered before them.

    Blocks are lowered in order, so the assignment is in an earlier block, or earlier in the same
    one.

    Returns
    -------
    By name, whether the local is assigned and deleted at most once in a run.
    """
    graph = compute_cfg_from_blocks(blocks)
    dominators = graph.dominators()
    looped = {label for loop in graph.loops().values() for label in loop.body}
    assigned: dict[str, list[int]] = defaultdict(list)
    deleted: dict[str, list[int]] = defaultdict(list)
    for label, block in blocks.items():
        for assignment in block.find_insts(numba_ir.Assign):
            assigned[assignment.target.name].append(label)
        for assignment in block.find_insts(numba_ir.Del):
            deleted[assignment.value].append(label)
    on_stack = must_use_alloca(blocks)
    definitions = {
        name: labels[0]
        for name, labels in assigned.items()
        if len(labels) == 1 and name not in on_stack
    }
    for label, block in blocks.items():
        assigned_here: set[str] = set()  # locals assigned in this block so far
        for statement in block.body:
            for name in _uses(statement):
                defining_block = definitions.get(name)
                is_defined = (
                    name in assigned_here
                    if defining_block == label
                    else defining_block in dominators[label]
                )
                if defining_block is not None and not (is_defined and defining_block <= label):
                    del definitions[name]
            if isinstance(statement, numba_ir.Assign):
                assigned_here.add(statement.target.name)
    return {
        name: len(deleted[name]) <= 1 and looped.isdisjoint([label, *deleted[name]])
        for name, label in definitions.items()
    }


def _uses(statement: numba_ir.Stmt) -> list[str]:
    if isinstance(statement, numba_ir.Del):
        return [statement.value]
    if isinstance(statement, numba_ir.Assign):
        value = statement.value
        if isinstance(value, numba_ir.Var):
            return [value.name]
        return [v.name for v in value.list_vars()] if hasattr(value, "list_vars") else []
    return [v.name for v in statement.list_vars()]


def used_as_indices(blocks: dict[int, Any]) -> set[str]:
    """Locals that are read only as the index of an element, or to compute one."""
    computed_from: dict[str, set[str]] = defaultdict(set)
    read_names, worklist = set(), []
    for block in blocks.values():
        for statement in block.find_insts(numba_ir.Stmt):
            if isinstance(statement, numba_ir.Del):
                continue
            names = _uses(statement)
            read_names |= set(names)
            if _may_compute_index(statement):
                computed_from[statement.target.name] |= set(names)
                continue
            if (index := _index(statement)) is not None:
                names.remove(index.name)
            worklist += names
    non_indices: set[str] = set()
    while worklist:
        name = worklist.pop()
        if name not in non_indices:
            non_indices.add(name)
            worklist += computed_from[name]
    return read_names - non_indices


def _index(statement: numba_ir.Stmt) -> Any:
    """The local that indexes the element that a statement reads or writes; None without one."""
    reads_element = isinstance(statement, numba_ir.Assign) and (
        isinstance(statement.value, numba_ir.Expr) and statement.value.op == "getitem"
    )
    if reads_element or isinstance(statement, numba_ir.SetItem):
        return (statement.value if reads_element else statement).index
    return None


def _may_compute_index(statement: numba_ir.Stmt) -> bool:
    if not isinstance(statement, numba_ir.Assign):
        return False
    value = statement.value
    is_tuple = isinstance(value, numba_ir.Expr) and value.op == "build_tuple"
    return is_tuple or isinstance(value, numba_ir.Var) or _is_arithmetic(value)


def _is_arithmetic(value: object) -> bool:
    return (
        isinstance(value, numba_ir.Expr)
        and value.op in {"binop", "inplace_binop"}
        and (value.fn if value.op == "binop" else value.immutable_fn) in _WRAPPING
    )


def _is_number(declared: types.Type) -> bool:
    return isinstance(declared, types.Number | types.Boolean)


def _alignment(declared: types.Array) -> int | None:
    return None if declared.aligned else 1


@register_pass(mutates_CFG=True, analysis_only=False)
class EmittedLowering(NativeLowering):  # type: ignore[misc]  # Numba has no types
    """Numba's lowering pass, with `LowerEmitted`."""

    @property
    def lowering_class(self) -> Any:
        return LowerEmitted


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(EmittedLowering):
    """Lowering of a function that only native code calls."""

    def run_pass(self, state: compiler.StateDict) -> bool:
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().run_pass(state)

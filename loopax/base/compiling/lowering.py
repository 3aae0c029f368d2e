"""Lowering of emitted functions to LLVM.

Numba allocates a stack slot for each local that more than one block uses, for the descriptor of an array
(seven numbers and pointers) wherever an element is read, and for each part of an iterator. LLVM removes
these again, in most of its time. Here a local that is assigned once is an SSA value wherever it is used,
elements are addressed through the fields of their array's descriptor, a range is one counter
(`ranges`), and the builder folds the structs that remain (`folding`). A likelihood of 700 lines has a
sixth of the instructions.

Numba also promises LLVM that sums, differences and products of signed integers do not wrap around
(``nsw``), so that ``i + 1`` is never an index from the end. For numbers that the user compares that gives
wrong answers: LLVM simplifies ``x * x < 0`` to False. Here only indices carry the promise.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from numba import types

from loopax.base.compiling.elements import LowerElements, is_number
from loopax.base.compiling.folding import FoldingBuilder
from loopax.base.compiling.libraries import EmittedLibrary, InnerEmittedLibrary, InnerLibrary
from loopax.base.compiling.lifetimes import borrowed_arguments
from loopax.base.compiling.locals import is_arithmetic, used_as_indices, values_once
from loopax.base.compiling.ranges import Counter, counted_iterators, counter_of
from loopax.base.upstream.numba import (
    LoweringError,
    NativeLowering,
    compiler,
    ir,
    new_error_context,
    numba_ir,
    register_pass,
)

_POWERS = {operator.pow, operator.ipow}


class LowerEmitted(LowerElements):
    """Numba's lowering with fewer stack slots."""

    def init(self) -> None:
        self._counted: dict[types.Type, bool] = {}
        self._operators: dict[Any, tuple[Any, types.Type]] = {}  # by operator and types
        super().init()

    def _find_singly_assigned_variable(self) -> None:
        blocks = self.func_ir.blocks
        self._borrowed = borrowed_arguments(blocks)
        # Numba may delete a local twice: a stack slot is null the second time.
        self._singly_assigned_vars = {
            name
            for name, deleted_once in values_once(blocks).items()
            if deleted_once or not self._owns_references(name)
        }
        self._blk_local_varmap: dict[str, Any] = {}
        self._iterators = counted_iterators(blocks, self._singly_assigned_vars)
        self._counters: dict[str, Counter] = {}

    def _owns_references(self, name: str) -> bool:
        return name not in self._borrowed and self._counts_references(self.typeof(name))

    def _counts_references(self, type_: types.Type) -> bool:
        if type_ not in self._counted:
            model = self.context.data_model_manager[type_]
            self._counted[type_] = bool(model.contains_nrt_meminfo())
        return self._counted[type_]

    def setup_function(self, descriptor: Any) -> None:
        super().setup_function(descriptor)
        self.builder = FoldingBuilder(self.entry_block)
        self.call_helper = self.call_conv.init_call_helper(self.builder)

    def lower_normal_function(self, descriptor: Any) -> None:
        super().lower_normal_function(descriptor)
        self.builder.remove_unread()

    def lower_function_body(self) -> Any:
        self._indices = used_as_indices(self.func_ir.blocks)
        return super().lower_function_body()

    # -- references ------------------------------------------------------------------------------

    def incref(self, type_: types.Type, value: Any) -> None:
        if self._counts_references(type_):
            super().incref(type_, value)

    def decref(self, type_: types.Type, value: Any) -> None:
        if self._counts_references(type_):
            super().decref(type_, value)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        if name in self._singly_assigned_vars or self._owns_references(name):
            super().storevar(value, name, argidx)
        else:
            self._alloca_var(name, self.typeof(name))
            self.builder.store(value, self.getvar(name))

    def lower_block(self, block: numba_ir.Block) -> None:
        # Numba opens a context for errors around each statement, which takes a tenth of the time.
        self.pre_block(block)
        try:
            for statement in block.body:
                self.loc = statement.loc
                self.lower_inst(statement)
        except Exception:
            location = self.loc
            error = partial(LoweringError, loc=location)
            with new_error_context(f'lowering "{statement}" at {location}', errcls_=error):
                raise
        self.post_block(block)

    # -- assignments -----------------------------------------------------------------------------

    def lower_assign(self, type_: types.Type, statement: numba_ir.Assign) -> Any:
        value = self._argument(type_, statement)
        if value is None:
            value = self._iteration(type_, statement)
        if value is not None:
            return value
        value = super().lower_assign(type_, statement)
        # For an operator of integers Numba emits one instruction, with the type of the operands.
        if (
            is_arithmetic(statement.value)
            and statement.target.name not in self._indices
            and "nsw" in getattr(value, "flags", ())
        ):
            value.flags.remove("nsw")
        return value

    def lower_binop(self, type_: types.Type, expression: numba_ir.Expr, op: Any) -> Any:
        # Numba first looks for an implementation for the literals among the operands, which only powers
        # have, and asks again for the type of each sum.
        operands = expression.lhs.name, expression.rhs.name
        if op in _POWERS or not all(is_number(self.typeof(name)) for name in operands):
            return super().lower_binop(type_, expression, op)
        declared = self.fndesc.calltypes[expression].args
        if (op, declared) not in self._operators:
            typing = self.context.typing_context
            function = typing.resolve_value_type(op)
            signature = function.get_call_type(typing, declared, {})
            implementation = self.context.get_function(function, signature)
            self._operators[op, declared] = implementation, signature.return_type
        implementation, result_type = self._operators[op, declared]
        values = [
            self.context.cast(self.builder, self.loadvar(name), self.typeof(name), kind)
            for name, kind in zip(operands, declared, strict=True)
        ]
        result = implementation(self.builder, values)
        return self.context.cast(self.builder, result, result_type, type_)

    def _argument(self, type_: types.Type, statement: numba_ir.Assign) -> Any:
        """An argument, without a reference of its own; None for any other statement."""
        if (
            not isinstance(statement.value, numba_ir.Arg)
            or statement.target.name not in self._borrowed
        ):
            return None
        declared = self.typeof(f"arg.{statement.value.name}")
        if isinstance(declared, types.Omitted):
            return None
        return self.context.cast(self.builder, self.fnargs[statement.value.index], declared, type_)

    def _iteration(self, type_: types.Type, statement: numba_ir.Assign) -> Any:
        """An iterator, its next pair, or a part of one; None for any other statement."""
        value, target = statement.value, statement.target.name
        if isinstance(value, numba_ir.Var):
            if target not in self._iterators or value.name not in self._counters:
                return None
            self._counters[target] = self._counters[value.name]
            return self._undefined(type_)
        match getattr(value, "op", None):
            case "getiter" if target in self._iterators:
                if (counter := self._counter(value.value.name)) is None:
                    return None
                self._counters[target] = counter
                return self._undefined(type_)
            case "iternext" if value.value.name in self._counters:
                counter = self._counters[value.value.name]
                pair = self._undefined(type_)
                for k, part in enumerate(counter.next(self.builder)):
                    pair = self.builder.insert_value(pair, part, k)
                if counter.is_never_negative:
                    self.never_negative.add(id(self.builder.extract_value(pair, 0)))
                return pair
            case "pair_first" | "pair_second" as part:
                field = self.builder.extract_value(
                    self.loadvar(value.value.name), int(part == "pair_second")
                )
                self.incref(type_, field)
                return field
        return None

    def _counter(self, name: str) -> Counter | None:
        """The counter for a loop over the local ``name``; None for anything but a range of step 1 or -1."""
        kind = self.typeof(name)
        if not isinstance(kind, types.RangeType):
            return None
        return counter_of(self.builder, self.loadvar(name), kind.dtype.signed)

    def _undefined(self, type_: types.Type) -> Any:
        return ir.Constant(self.context.get_value_type(type_), ir.Undefined)


@register_pass(mutates_CFG=True, analysis_only=False)
class EmittedLowering(NativeLowering):  # type: ignore[misc]  # Numba has no types
    """Numba's lowering pass for programs, with `LowerEmitted`."""

    library_class: Any = EmittedLibrary

    @property
    def lowering_class(self) -> Any:
        return LowerEmitted

    def run_pass(self, state: compiler.StateDict) -> bool:
        state.library = self.library_class(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(EmittedLowering):
    """Lowering of a function that only native code calls."""

    library_class = InnerLibrary


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerEmittedLowering(EmittedLowering):
    """Lowering of a program that only native code calls."""

    library_class = InnerEmittedLibrary

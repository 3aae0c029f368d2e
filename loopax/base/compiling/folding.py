"""An LLVM builder that folds what it is asked to emit, so that less text is written, parsed and optimized.

Numba builds a struct, such as the descriptor of an array, in memory: it reserves a stack slot, writes
zeros and then each field, and reads the whole; each user stores it in a slot of its own to read one
field. LLVM removes all of that, in most of its time: a likelihood of 700 lines had 30,000
instructions, of which 200 were arithmetic.

The folds, each local to a block or to a chain of values:

- a read from a slot is the value that the same block wrote there;
- a field of a struct that was just put together is the value that was put in;
- integers: constants, and sums and products with neutral elements;
- a change of the reference count of no memory is nothing;
- a slot that nobody reads is removed with its writes, at the end (`remove_unread`).

A slot counts as known only while its address is used for reads and writes alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from loopax.base.upstream.numba import ir

_COUNTING = frozenset({"NRT_incref", "NRT_decref"})
_PARTS = ir.InsertValue, ir.ExtractValue


class _Slot:
    """A stack slot of one value: its uses, and what is known to be in it, by block."""

    def __init__(self, address: Any) -> None:
        self.address = address
        self.is_used = False  # it is read, or its address is known elsewhere
        self.is_shared = False  # code that does not name the slot may write to it
        self.uses: list[Any] = []  # writes, and addresses of fields
        self.contents: dict[Any, _Contents] = {}


class _Contents:
    """The values that a block wrote into a slot: the whole, and fields that it wrote later."""

    def __init__(self, whole: Any = None) -> None:
        self.whole = whole
        self.fields: dict[int, Any] = {}


class FoldingBuilder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite has no types
    """An `IRBuilder` whose values may be earlier ones instead of new instructions."""

    def __init__(self, block: Any = None) -> None:
        super().__init__(block)
        # By the ids of addresses, which the slots keep alive.
        self._slots: dict[int, _Slot] = {}
        self._fields: dict[int, tuple[_Slot, int]] = {}
        self._extracted: dict[tuple[int, int, int], tuple[Any, Any]] = {}

    # -- slots -----------------------------------------------------------------------------------

    def alloca(self, typ: Any, size: Any = None, name: str = "") -> Any:
        address = super().alloca(typ, size, name)
        if size is None:
            self._slots[id(address)] = _Slot(address)
        return address

    def gep(self, ptr: Any, indices: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        slot = self._slots.get(id(ptr))
        address = super().gep(ptr, indices, *args, **kwargs)
        if slot is not None:
            constants = [getattr(k, "constant", None) for k in indices]
            if len(constants) == 2 and constants[0] == 0 and isinstance(constants[1], int):
                self._fields[id(address)] = slot, constants[1]
                slot.uses.append(address)
            else:
                self._share(slot)
        return address

    def store(self, value: Any, ptr: Any, *args: Any, **kwargs: Any) -> Any:
        written = super().store(value, ptr, *args, **kwargs)
        slot, field = self._slot_of(ptr)
        if slot is not None:
            slot.uses.append(written)
            if not self._is_at_end():
                self._share(slot)
            elif field is None:
                slot.contents[self._block] = _Contents(value)
            else:
                slot.contents.setdefault(self._block, _Contents()).fields[field] = value
        return written

    def load(self, ptr: Any, *args: Any, **kwargs: Any) -> Any:
        slot, field = self._slot_of(ptr)
        if slot is None:
            return super().load(ptr, *args, **kwargs)
        is_known = not slot.is_shared and self._is_at_end()
        if is_known and (value := self._content(slot, field)) is not None:
            return value
        slot.is_used = True
        value = super().load(ptr, *args, **kwargs)
        if is_known and field is None:
            slot.contents[self._block] = _Contents(value)
        return value

    def phi(self, typ: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(typ, ir.PointerType):  # its addresses are added without the builder
            for slot in self._slots.values():
                self._share(slot)
        return super().phi(typ, *args, **kwargs)

    def _slot_of(self, address: Any) -> tuple[_Slot | None, int | None]:
        if (slot := self._slots.get(id(address))) is not None:
            return slot, None
        return self._fields.get(id(address), (None, None))

    def _content(self, slot: _Slot, field: int | None) -> Any:
        """The value that this block wrote into a slot, or into one field of it; None if unknown."""
        contents = slot.contents.get(self._block)
        if contents is None:
            return None
        if field is not None:
            value = contents.fields.get(field)
            if value is None and contents.whole is not None:
                value = self.extract_value(contents.whole, field)
            return value
        if contents.fields:
            whole, length = contents.whole, len(slot.address.type.pointee.elements)
            if len(contents.fields) == length:
                whole = ir.Constant(slot.address.type.pointee, ir.Undefined)
            if whole is None:
                return None
            for k, value in sorted(contents.fields.items()):
                whole = self.insert_value(whole, value, k)
            slot.contents[self._block] = contents = _Contents(whole)
        return contents.whole

    def _is_at_end(self) -> bool:
        """Whether the next instruction is executed after all others of the block so far."""
        block = self._block
        return bool(self._anchor == len(block.instructions) - (block.terminator is not None))

    def _share(self, slot: _Slot) -> None:
        slot.is_shared = slot.is_used = True

    def _insert(self, instr: Any) -> None:
        super()._insert(instr)
        # Writes and fields of slots return to `store` and `gep`, which know the slot by its address.
        for k, operand in enumerate(instr.operands):
            if isinstance(operand, ir.Constant):
                continue
            slot, _ = self._slot_of(operand)
            if slot is None:
                continue
            is_address = (
                (isinstance(instr, ir.LoadInstr) and k == 0)
                or (isinstance(instr, ir.StoreInstr) and k == 1)
                or (isinstance(instr, ir.GEPInstr) and k == 0 and operand is slot.address)
            )
            if not is_address:
                self._share(slot)

    def remove_unread(self) -> None:
        """Remove the slots that nobody reads, with their writes, and unread parts of structs."""
        removed = set()
        for slot in self._slots.values():
            if not slot.is_used:
                removed |= {id(slot.address), *map(id, slot.uses)}
        kept = [
            i for block in self.function.blocks for i in block.instructions if id(i) not in removed
        ]
        readers = Counter(id(x) for i in kept for x in _operands(i))
        unread = [i for i in kept if isinstance(i, _PARTS) and not readers[id(i)]]
        while unread:
            instruction = unread.pop()
            removed.add(id(instruction))
            for x in instruction.operands:
                readers[id(x)] -= 1
                if isinstance(x, _PARTS) and not readers[id(x)]:
                    unread.append(x)
        for block in self.function.blocks:
            block.instructions[:] = [i for i in block.instructions if id(i) not in removed]
        self.position_at_end(self._block)

    # -- structs ---------------------------------------------------------------------------------

    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        for k in idx if isinstance(idx, tuple | list) else [idx]:
            agg = self._field(agg, k, name)
        return agg

    def _field(self, struct: Any, k: int, name: str) -> Any:
        while isinstance(struct, ir.InsertValue):
            if struct.indices[0] != k:
                struct = struct.aggregate
            elif len(struct.indices) == 1:
                return struct.value
            else:
                break
        if isinstance(struct, ir.Constant):
            kind = (
                struct.type.elements[k] if hasattr(struct.type, "elements") else struct.type.element
            )
            if struct.constant is None or struct.constant is ir.Undefined:
                return ir.Constant(kind, struct.constant)
            if isinstance(struct.constant, tuple | list):
                return struct.constant[k]
        key = id(struct), k, id(self._block)
        if key not in self._extracted or not self._is_at_end():
            self._extracted[key] = super().extract_value(struct, k, name), struct
        return self._extracted[key][0]

    # -- integers --------------------------------------------------------------------------------

    def add(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        a, b = _integer(lhs), _integer(rhs)
        if a is not None and b is not None:
            return _constant(lhs.type, a + b)
        if a == 0:
            return rhs
        return lhs if b == 0 else super().add(lhs, rhs, name, flags)

    def sub(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        a, b = _integer(lhs), _integer(rhs)
        if a is not None and b is not None:
            return _constant(lhs.type, a - b)
        return lhs if b == 0 else super().sub(lhs, rhs, name, flags)

    def mul(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        a, b = _integer(lhs), _integer(rhs)
        if a is not None and b is not None:
            return _constant(lhs.type, a * b)
        if a == 1:
            return rhs
        return lhs if b == 1 else super().mul(lhs, rhs, name, flags)

    # -- references ------------------------------------------------------------------------------

    def call(self, fn: Any, args: Sequence[Any], *options: Any, **kwargs: Any) -> Any:
        if getattr(fn, "name", None) in _COUNTING and _is_null(args[0]):
            return None
        return super().call(fn, args, *options, **kwargs)


def _operands(instruction: Any) -> Sequence[Any]:
    if isinstance(instruction, ir.PhiInstr):
        return [value for value, _ in instruction.incomings]
    operands: Sequence[Any] = instruction.operands
    return operands


def _integer(value: Any) -> int | None:
    is_integer = isinstance(value, ir.Constant) and isinstance(value.type, ir.IntType)
    return value.constant if is_integer and isinstance(value.constant, int) else None


def _constant(kind: Any, value: int) -> Any:
    """An integer of ``kind``, wrapped around as two's complement."""
    bits = kind.width
    value &= (1 << bits) - 1
    return ir.Constant(kind, value - (1 << bits) if bits > 1 and value >> (bits - 1) else value)


def _is_null(value: Any) -> bool:
    return isinstance(value, ir.Constant) and value.constant is None

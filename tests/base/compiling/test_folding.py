"""The folds of the LLVM builder: what it leaves out, and what it must not."""

import ctypes

import numpy as np
import pytest
from llvmlite import binding as llvm
from llvmlite import ir
from numba import njit

from loopax.base.compiling.folding import FoldingBuilder
from loopax.base.compiling.pipeline import EmittedCode

I64, DOUBLE = ir.IntType(64), ir.DoubleType()
PAIR = ir.LiteralStructType([I64, I64])


@pytest.fixture
def function():
    kind = ir.FunctionType(I64, [I64, I64])
    return ir.Function(ir.Module(), kind, "f")


@pytest.fixture
def builder(function):
    return FoldingBuilder(function.append_basic_block())


def result(function, *args):
    """What the function returns, compiled by LLVM."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(str(function.module))
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine()
    with llvm.create_mcjit_compiler(module, machine) as engine:
        engine.finalize_object()
        address = engine.get_function_address("f")
        return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(*args)


def opcodes(function):
    return [i.opname for block in function.blocks for i in block.instructions]


def pair_in_memory(builder, first, second):
    slot = builder.alloca(PAIR)
    builder.store(ir.Constant(PAIR, None), slot)
    for k, value in enumerate((first, second)):
        builder.store(value, builder.gep(slot, [I64(0), ir.IntType(32)(k)], inbounds=True))
    return slot


def test_a_struct_that_is_built_and_read_in_memory_is_nothing(builder, function):
    x, y = function.args
    pair = builder.load(pair_in_memory(builder, x, y))
    again = builder.alloca(PAIR)
    builder.store(pair, again)
    second = builder.load(builder.gep(again, [I64(0), ir.IntType(32)(1)]))
    assert second is y and builder.extract_value(pair, 0) is x
    builder.ret(builder.sub(second, builder.extract_value(pair, 0)))
    builder.remove_unread()
    assert opcodes(function) == ["sub", "ret"]
    assert result(function, 3, 10) == 7


def test_a_slot_that_other_code_may_write_is_read(builder, function):
    x, y = function.args
    change = ir.Function(
        function.module, ir.FunctionType(ir.VoidType(), [PAIR.as_pointer()]), "change"
    )
    inner = ir.IRBuilder(change.append_basic_block())
    inner.store(I64(100), inner.gep(change.args[0], [I64(0), ir.IntType(32)(0)]))
    inner.ret_void()
    slot = pair_in_memory(builder, x, y)
    first = builder.gep(slot, [I64(0), ir.IntType(32)(0)])
    assert builder.load(first) is x
    builder.call(change, [slot])
    value = builder.load(first)
    assert value is not x
    builder.ret(value)
    builder.remove_unread()
    assert result(function, 3, 10) == 100


@pytest.mark.parametrize("escape", ["address", "field", "index", "phi"])
def test_a_slot_whose_address_is_passed_on_is_read(builder, function, escape):
    x, y = function.args
    slot = pair_in_memory(builder, x, y)
    one = ir.IntType(32)(1)
    match escape:
        case "address":
            pointer = builder.bitcast(slot, I64.as_pointer())
        case "field":
            pointer = builder.bitcast(builder.gep(slot, [I64(0), one]), I64.as_pointer())
            pointer = builder.gep(pointer, [I64(-1)])
        case "index":
            pointer = builder.gep(slot, [builder.and_(x, I64(0)), ir.IntType(32)(0)])
        case "phi":
            start, block = builder.block, function.append_basic_block()
            builder.branch(block)
            builder.position_at_end(block)
            phi = builder.phi(PAIR.as_pointer())
            phi.add_incoming(slot, start)
            pointer = builder.gep(phi, [I64(0), ir.IntType(32)(0)])
    builder.store(I64(100), pointer)
    builder.ret(builder.load(builder.gep(slot, [I64(0), ir.IntType(32)(0)])))
    builder.remove_unread()
    assert result(function, 3, 10) == 100


def test_a_slot_is_not_known_in_another_block(builder, function):
    x, y = function.args
    slot = builder.alloca(I64)
    builder.store(x, slot)
    with builder.if_then(builder.icmp_signed(">", y, I64(0))):
        assert builder.load(slot) is not x
        builder.store(y, slot)
        assert builder.load(slot) is y
    builder.ret(builder.load(slot))
    builder.remove_unread()
    assert result(function, 3, 10) == 10
    assert result(function, 3, -10) == 3


def test_writes_at_the_start_of_a_block_come_before_those_at_its_end(builder, function):
    x, y = function.args
    slot = builder.alloca(I64)
    builder.store(x, slot)
    builder.position_at_start(function.entry_basic_block)
    early = builder.alloca(I64)
    builder.store(y, early)
    builder.position_at_end(function.entry_basic_block)
    builder.ret(builder.sub(builder.load(slot), builder.load(early)))
    builder.remove_unread()
    assert result(function, 10, 3) == 7


def test_integers_and_constants(builder, function):
    x, _ = function.args
    assert builder.add(x, I64(0)) is x and builder.add(I64(0), x) is x
    assert builder.mul(x, I64(1)) is x and builder.mul(I64(1), x) is x
    assert builder.sub(x, I64(0)) is x
    i8 = ir.IntType(8)
    assert builder.add(i8(127), i8(1)).constant == -128
    assert builder.mul(i8(-128), i8(-1)).constant == -128
    assert builder.sub(i8(-128), i8(1)).constant == 127
    assert builder.extract_value(ir.Constant(PAIR, [I64(3), I64(4)]), 1).constant == 4
    assert builder.extract_value(ir.Constant(PAIR, None), 1).constant == 0
    assert not opcodes(function)
    assert builder.sub(I64(0), x) is not x
    assert builder.mul(x, I64(0)) is not x


def test_a_field_within_a_field(builder, function):
    x, y = function.args
    nested = ir.LiteralStructType([PAIR, I64])
    whole = builder.insert_value(ir.Constant(nested, ir.Undefined), x, [0, 1])
    whole = builder.insert_value(whole, y, 1)
    assert builder.extract_value(whole, 1) is y
    builder.ret(builder.extract_value(whole, [0, 1]))
    builder.remove_unread()
    assert result(function, 3, 10) == 3


def test_a_loop_over_an_array_is_a_dozen_instructions(texts):
    def copy(x, y):
        for i in range(y.shape[0]):
            y[i] = x[i]

    def count(**options):
        texts.clear()
        y = np.zeros(3)
        njit(copy, **options)(np.arange(3.0), y)
        np.testing.assert_array_equal(y, [0.0, 1.0, 2.0])
        return next(text.count("\n  ") for text in texts if "\nB0:" in text)

    ours, theirs = count(pipeline_class=EmittedCode), count()
    print(f"{ours} instructions, of Numba's {theirs}")
    assert ours < 40 and theirs > 150

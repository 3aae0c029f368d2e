"""Methods: traced with what their instance holds, and never answered by a trace of what it held before."""

import gc
import pickle
import threading
import weakref
from dataclasses import dataclass
from functools import partial
from inspect import signature
from types import MappingProxyType

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import loopax
from loopax import LoopTypeError, explain, jaxify
from loopax.calling.instance_state import state_of

BACKENDS = pytest.mark.parametrize("backend", ["jax", "numba"])


class Inner:
    unit = 1.0

    def __init__(self):
        self.values = [1.0, 2.0]


class Line:
    """In JAX ``at`` and in native code ``native_at`` of the same numbers."""

    steps = 1.0

    def __init__(self, slope):
        self.slope = slope
        self.offsets = np.array([1.0, 2.0])
        self.inner = Inner()
        self.options = {"scale": 1.0}
        self.shared = pytensor.shared(0.0)
        self.traces = []

    def _value(self, x):
        values = sum(self.inner.values) * self.inner.unit * self.options["scale"] * self.steps
        return self.slope * x + self.offsets.sum() + values + self.shared

    at = jaxify(_value, name="at")
    native_at = jaxify(_value, backend="numba", name="native_at")

    @classmethod
    @jaxify
    def of_class(cls, x):
        return cls.steps * x

    @jaxify
    @classmethod
    def of_class_too(cls, x):
        return cls.steps * x

    @staticmethod
    @jaxify
    def static(x):
        return 2 * x

    @jaxify(backend="numba")
    @staticmethod
    def static_too(x):
        return 2 * x


CHANGES = {
    "a number": lambda m: setattr(m, "slope", 10.0),
    "a number for an equal one of another kind": lambda m: setattr(m, "slope", 2),
    "an array in place": lambda m: m.offsets.__setitem__(0, 7.0),
    "an array": lambda m: setattr(m, "offsets", np.ones(5)),
    "a list of an object in it": lambda m: m.inner.values.append(3.0),
    "an attribute of a class of an object in it": lambda m: setattr(type(m.inner), "unit", 2.0),
    "an entry of a dict": lambda m: m.options.update(scale=3.0),
    "an attribute of its class": lambda m: setattr(type(m), "steps", 3.0),
    "a shared variable": lambda m: m.shared.set_value(4.0),
}


@pytest.fixture
def line(monkeypatch):
    monkeypatch.setattr(Line, "steps", 1.0)  # restored
    monkeypatch.setattr(Inner, "unit", 1.0)
    return Line(2.0)


@pytest.mark.sampled(1)
@BACKENDS
def test_what_changes_in_an_instance_is_seen(line, backend):
    names = {"jax": "at", "numba": "native_at"}
    for what, change in CHANGES.items():
        for _ in range(2):
            actual = getattr(line, names[backend])(3.0)
            wanted = line._value(pt.constant(3.0)).eval()
            assert (actual.dtype, float(actual)) == (wanted.dtype, wanted), what
        change(line)
        assert float(getattr(line, names[backend])(3.0)) == line._value(pt.constant(3.0)).eval(), (
            what
        )


@pytest.mark.slow
@BACKENDS
def test_a_method_is_traced_once_while_nothing_changes(backend):
    seen = []

    class Model:
        def __init__(self, a):
            self.a, self.data = a, np.arange(3.0)

        @jaxify(backend=backend)
        def f(self, x):
            seen.append(self.a)
            return self.a * x

    one, two = Model(1.0), Model(2.0)
    assert [float(m.f(3.0)) for m in (one, two, one, two)] == [3, 6, 3, 6]
    assert seen == [1.0, 2.0]
    one.a = 5.0
    assert [float(m.f(3.0)) for m in (one, two)] == [15, 6]
    one.a = 1.0  # as it was
    assert float(one.f(3.0)) == 3 and seen == [1.0, 2.0, 5.0]
    alive = weakref.ref(one)
    del one
    gc.collect()
    assert alive() is None


@pytest.mark.slow
def test_derivatives_batches_and_state_of_methods(line):
    assert jax.grad(line.at)(3.0) == loopax.grad(line.native_at)(3.0) == 2
    slope = loopax.grad(line.native_at)
    along = [loopax.jvp(f, (3.0,), (1.0,))[1] for f in (line.at, line.native_at)]
    line.slope = 5.0
    assert along == [2, 2] and slope(3.0) == jax.grad(line.at)(3.0) == 5
    assert loopax.jvp(line.native_at, (3.0,), (1.0,))[1] == 5
    assert jax.vmap(line.at)(np.ones(2)).shape == (2,)
    assert float(line.at.stateful()(3.0)) == float(line.at(3.0))
    assert explain(line.at, 3.0).name == "at"
    assert list(signature(line.at).parameters) == ["x"]


def test_class_methods_and_static_methods(line):
    for target in (Line, line):
        assert [float(f(3.0)) for f in (target.of_class, target.of_class_too)] == [3, 3]
        assert [float(f(3.0)) for f in (target.static, target.static_too)] == [6, 6]
    Line.steps = 2.0
    assert [float(f(3.0)) for f in (Line.of_class, line.of_class_too)] == [6, 6]


def test_a_method_given_to_jaxify_and_what_is_made_of_it():
    line = Line(2.0)
    for f in (jaxify(line._value), jaxify(partial(line._value))):
        line.slope = 2.0
        before = float(f(3.0))
        line.slope = 3.0
        assert float(f(3.0)) == before + 3


def test_a_partial_reads_the_objects_among_its_arguments():
    line = Line(2.0)
    for f in (
        jaxify(partial(Line._value, line)),
        jaxify(partial(lambda x, of: of._value(x), of=line)),
    ):
        line.slope = 2.0
        before = float(f(3.0))
        line.slope = 3.0
        assert float(f(3.0)) == before + 3


def test_a_pickled_method_is_that_of_its_instance():
    line = Line(2.0)
    line.at(3.0)
    again = pickle.loads(pickle.dumps(line.at))
    assert float(again(3.0)) == float(line.at(3.0)) and again.instance.slope == 2


class Slotted:
    __slots__ = ("a",)

    @jaxify
    def f(self, x):
        return self.a * x


@dataclass
class Record:  # without a hash
    a: float

    @jaxify
    def f(self, x):
        return self.a * x


def test_instances_with_slots_and_without_a_hash():
    one, record = Slotted(), Record(2.0)
    one.a = 2.0
    assert float(one.f(3.0)) == float(record.f(3.0)) == 6
    one.a = record.a = 4.0
    assert float(one.f(3.0)) == float(record.f(3.0)) == 12


class Holder:
    def __init__(self, held):
        self.held = held

    @jaxify
    def f(self, x):
        return 2 * x


def test_what_cannot_be_compared_is_refused_by_its_name():
    with pytest.raises(
        LoopTypeError, match=r"trace of Holder\.f .*attribute 'held'.*generator.*lambda x"
    ):
        Holder(i for i in ()).f(1.0)


@pytest.mark.parametrize(
    ("held", "change"),
    [
        (np.random.default_rng(1), lambda held: held.normal()),
        (
            np.ma.masked_array([1.0, 2.0], [False, False]),
            lambda held: held.__setitem__(0, np.ma.masked),
        ),
        (np.array([[1.0], None], dtype=object), lambda held: held[0].append(2.0)),
        ({1, 2}, lambda held: held.add(3)),
        (bytearray(b"a"), lambda held: held.append(1)),
        (partial(sum, [1, 2]), lambda held: held.args[0].append(3)),
    ],
)
def test_changes_in_place(held, change):
    holder = Holder(held)
    before = state_of(holder, "f")
    before.keep()
    assert before == state_of(holder, "f")
    change(held)
    assert before != state_of(holder, "f")


def test_what_has_no_numbers_and_what_holds_itself():
    holder = Holder(None)
    for held in (
        threading.Lock(),
        len,
        np.sin,
        np,
        pt.dvector(),
        holder,
        [holder, holder],
        lambda: holder,
    ):
        holder.held = held
        assert state_of(holder, "f") == state_of(holder, "f")
    assert state_of(Holder(-0.0), "f") != state_of(Holder(0.0), "f")
    assert state_of(Holder(np.nan), "f") == state_of(Holder(np.nan), "f")
    assert state_of(Holder(True), "f") != state_of(Holder(1), "f")


def test_a_warning_where_each_call_is_traced():
    holder = Holder(0)
    for k in range(15):
        holder.held = k
        holder.f(1.0)
    holder.held = 15
    with pytest.warns(
        UserWarning, match=r"f of a Holder has been traced 16 times.*'held'.*argument"
    ):
        holder.f(1.0)


@BACKENDS
def test_a_callable_object_is_traced_in_its_state(backend):
    line = Caller(2.0)
    f = jaxify(line, backend=backend)
    assert float(f(3.0)) == 6.0
    line.slope = 10.0
    assert float(f(3.0)) == 30.0


class Caller:
    def __init__(self, slope):
        self.slope = slope

    def __call__(self, x):
        return self.slope * x


@BACKENDS
def test_entries_of_an_instance_that_is_a_dict(backend):
    class Parameters(dict):
        def _value(self, x):
            return self["slope"] * x

        f = jaxify(_value, backend=backend)

    parameters = Parameters(slope=2.0)
    assert float(parameters.f(3.0)) == 6.0
    parameters["slope"] = 10.0
    assert float(parameters.f(3.0)) == 30.0


class Parts:
    """A class whose method reads numbers in a private slot, a nested class and behind a reference."""

    class Config:
        unit = 2.0

    __slots__ = ("__private", "__weakref__", "parent", "table")

    def __init__(self, parent):
        self.__private = 2.0
        self.parent = weakref.ref(parent)
        self.table = MappingProxyType(parent.numbers)

    def set_private(self, value):
        self.__private = value

    def _value(self, x):
        return self.__private * self.Config.unit * self.parent().slope * self.table["k"] * x

    f = jaxify(_value, name="f")
    native_f = jaxify(_value, backend="numba", name="native_f")


@pytest.mark.parametrize("name", ["f", "native_f"])
def test_numbers_in_unusual_places(name):
    parent = Caller(2.0)
    parent.numbers = {"k": 2.0}
    parts = Parts(parent)
    f = getattr(parts, name)
    assert float(f(1.0)) == 16.0
    parts.set_private(3.0)
    assert float(f(1.0)) == 24.0
    parent.slope = 3.0
    assert float(f(1.0)) == 36.0
    parent.numbers["k"] = 3.0
    assert float(f(1.0)) == 54.0
    Parts.Config.unit = 1.0
    assert float(f(1.0)) == 27.0
    Parts.Config.unit = 2.0

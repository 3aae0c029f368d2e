"""`make bench-gpu`: what it says without a GPU, and how it counts the kernels of a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest

from benchmarks import gpu
from benchmarks.step_kernels import Launches, launches_in_loops
from loopax import jaxify, scan

# As XLA writes it on a GPU, shortened: a step of five kernels, three of which are one graph.
COMPILED = """\
HloModule jit_program, is_scheduled=true

%fused_add (p.0: f64[3]) -> f64[3] {
  %p.0 = f64[3]{0} parameter(0)
  ROOT %add.0 = f64[3]{0} add(%p.0, %p.0)
}

%command_buffer (p.1: f64[3], p.2: f64[3]) -> (f64[3], f64[3]) {
  %p.1 = f64[3]{0} parameter(0)
  %p.2 = f64[3]{0} parameter(1)
  %fusion.1 = f64[3]{0} fusion(%p.1), kind=kLoop, calls=%fused_add
  %fusion.2 = f64[3]{0} fusion(%fusion.1), kind=kLoop, calls=%fused_add
  %gemm = (f64[3]{0}, s8[64]{0}) custom-call(%fusion.2, %p.2), custom_call_target="__cublas$gemm"
  ROOT %tuple.1 = (f64[3]{0}, f64[3]{0}) tuple(%fusion.1, %fusion.2)
}

%body.1 (state: (s32[], f64[3])) -> (s32[], f64[3]) {
  %state = (s32[], f64[3]{0}) parameter(0)
  %count = s32[] get-tuple-element(%state), index=0
  %x = f64[3]{0} get-tuple-element(%state), index=1
  %call = (f64[3]{0}, f64[3]{0}) call(%x, %x), to_apply=%command_buffer
  %copy-start = (f64[3]{0}, f64[3]{0}, u32[]) copy-start(%x)
  %copy-done = f64[3]{0} copy-done(%copy-start)
  %fusion.3 = s32[] fusion(%count), kind=kLoop, calls=%fused_add
  ROOT %tuple.2 = (s32[], f64[3]{0}) tuple(%fusion.3, %copy-done)
}

%condition.1 (state.1: (s32[], f64[3])) -> pred[] {
  %state.1 = (s32[], f64[3]{0}) parameter(0)
  %count.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %compare = pred[] compare(%count.1, %count.1), direction=LT
}

ENTRY %main (arg: (s32[], f64[3])) -> (s32[], f64[3]) {
  %arg = (s32[], f64[3]{0}) parameter(0)
  %fusion.4 = f64[3]{0} fusion(%arg), kind=kLoop, calls=%fused_add
  ROOT %while.1 = (s32[], f64[3]{0}) while(%arg), condition=%condition.1, body=%body.1
}
"""


def test_kernels_of_a_step():
    actual = launches_in_loops(COMPILED)
    assert actual == Launches(5, 1)
    assert str(actual) == "5 + 1 g"
    assert launches_in_loops(COMPILED.replace("body=%body.1", "body=%none")) == Launches(0, 0)


def test_of_what_xla_compiles_here(as_users_have_it):
    def by_hand(n):
        def run(x):
            def step(c, row):
                for _ in range(n):  # a sort is no part of a fusion
                    c = jnp.sort(c * row)
                return c, c.sum()

            return jax.lax.scan(step, jnp.ones(3), x)

        text = jax.jit(run).lower(np.ones(5000)).compile().as_text()
        return launches_in_loops(text).kernels

    assert by_hand(0) < by_hand(1) < by_hand(3)
    x = pt.dvector("x")
    f = jaxify([x], scan(lambda c, row: (pt.tanh(c * row),) * 2, 1.0, x)[1], loops="xla")
    assert launches_in_loops(f.lower(np.ones(5000)).compile().as_text()).kernels > 0
    g = jaxify([x], pt.tanh(x), loops="xla")
    assert launches_in_loops(g.lower(np.ones(5000)).compile().as_text()) == Launches(0, 0)


def test_without_a_gpu_it_says_so_and_is_done(capsys):
    assert jax.default_backend() == "cpu"
    assert gpu.main([]) == 0
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("No GPU: JAX runs on cpu here.")


@pytest.mark.slow
def test_the_table(capsys, monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *args: None)  # what the tests have set stays
    assert gpu.main(["ar2", "--pairs", "1", "--anywhere"]) == 0
    *_, forward, gradient = capsys.readouterr().out.splitlines()
    for line, what in ((forward, "forward"), (gradient, "gradient")):
        assert line.startswith("AR(2) 1000") and what in line
        assert line.count("[") == len(gpu.FORMS)

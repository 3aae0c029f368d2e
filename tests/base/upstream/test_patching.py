"""Functions of other packages are replaced in a block, and put back whatever happens in it."""

import math

import pytest

from loopax.base.upstream.nutpie import compilation_patches
from loopax.base.upstream.patching import Patch, patched

HALVES_TAU = Patch("math", "tau", lambda module, original: original / 2, "nothing is halved")
MISSING = Patch("math", "ta", lambda module, original: 0, "a wrong letter stays")


def test_a_function_is_replaced_in_the_block_alone():
    with patched([HALVES_TAU]):
        assert math.tau == math.pi
    assert math.tau == 2 * math.pi


def test_an_error_in_the_block_puts_it_back():
    with pytest.raises(KeyboardInterrupt), patched([HALVES_TAU]):
        raise KeyboardInterrupt
    assert math.tau == 2 * math.pi


def test_one_function_replaced_twice_is_put_back():
    with patched([HALVES_TAU, HALVES_TAU]):
        assert math.tau == math.pi / 2
    assert math.tau == 2 * math.pi


def test_a_release_without_the_function_is_reported():
    with (
        pytest.warns(RuntimeWarning, match="math has no ta in this release: a wrong letter stays"),
        patched([MISSING, HALVES_TAU]),
    ):
        assert math.tau == math.pi
    assert not hasattr(math, "ta")


def test_every_patch_says_what_a_release_without_it_loses():
    patches = compilation_patches(
        make_functions=lambda original: original,
        compile_model=lambda original: original,
        c_logp=lambda module, original: original,
        c_expand=lambda module, original: original,
    )
    assert all(patch.if_missing for patch in patches)
    assert len({(patch.module, patch.name) for patch in patches}) == len(patches)

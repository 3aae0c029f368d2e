"""Runs of `loopax.pymc.sample` that go on after their process has ended."""

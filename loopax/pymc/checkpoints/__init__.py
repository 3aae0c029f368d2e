"""Runs of `loopax.pymc.sample` that resume after their process has ended."""

"""Loops and conditionals as nodes of the IR, from Python functions."""

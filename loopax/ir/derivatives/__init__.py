"""Derivatives of graphs and of loops, as graphs."""

"""Analyses of a graph for passes, apart from lengths and rows."""

"""Derivatives of every op, in both forms, at arguments of every kind."""

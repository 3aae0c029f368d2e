"""Loops that stop early and have a bound, with derivatives of any order."""

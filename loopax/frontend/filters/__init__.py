"""Filters and smoothers of state space models and hidden Markov models, step by step or as associative scans."""

"""Filters and smoothers of state space models and hidden Markov models, as loops or associative scans."""

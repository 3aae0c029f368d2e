"""Errors, options and locks, and adapters of other libraries: what every other folder stands on."""

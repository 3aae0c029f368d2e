"""Functions that an emitted program calls."""

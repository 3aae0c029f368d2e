"""Native functions as handlers of XLA's foreign function interface."""

"""Errors, options, locks and adapters of other libraries, on which every other folder depends."""

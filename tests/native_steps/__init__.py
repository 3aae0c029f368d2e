"""What native code calls at each step and has not written: see `tests/test_native_steps.py`."""

"""What a step of native code calls that is not native code of the step's own: see `tests/test_native_steps.py`."""

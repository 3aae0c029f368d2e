"""For each keyword of an op class, programs in which its value can be seen; a file for each family of ops.

`reasons` says why a keyword has none; tests/test_every_property.py runs them.
"""

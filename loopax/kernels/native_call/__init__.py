"""A JAX function as one primitive, whose loops become native code on the CPU when it is lowered."""

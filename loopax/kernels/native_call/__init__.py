"""A function of JAX as one primitive, whose loops are native code on the CPU once it is lowered."""

"""A JAX function as one primitive, whose loops become native code on the CPU during lowering."""

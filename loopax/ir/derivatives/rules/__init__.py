"""The derivatives of ops that PyTensor has wrong, or not at all. `loopax.ir` registers them."""

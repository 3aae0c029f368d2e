"""Programs, and their derivatives, as one primitive of JAX that runs natively on the CPU."""

"""The structure of Jacobians and Hessians, and the fewest products that measure them."""

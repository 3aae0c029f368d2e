"""Random functions of JAX, read into the IR and run as native code, against XLA.

writing        a random function, statement by statement
arrays         statements that read, write, order and reshape arrays
integers       statements on integers of each dtype
ranks          statements on stacks of matrices
transformed    statements with derivatives and batches inside, matrices and draws
control_flow   loops and branches, in each other
comparing      the transformations of a function, the forms that it runs in, and their differences
__main__       the command
"""

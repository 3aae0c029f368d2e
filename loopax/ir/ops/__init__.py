"""The ops of the IR: loops, conditionals, calls, traces."""

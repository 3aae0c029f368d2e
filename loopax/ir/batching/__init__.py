"""A batch of loops, lists or branches as one."""

"""Loop fusion: loops over the same steps become one."""

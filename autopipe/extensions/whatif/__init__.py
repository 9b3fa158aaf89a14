"""The command `autopipe whatif`: predicts another machine from the measurements of a tune on this one."""

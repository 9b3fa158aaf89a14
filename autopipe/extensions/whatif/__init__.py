"""The command `autopipe whatif`: what a machine that is not here would do, by what a tune has measured on this one."""

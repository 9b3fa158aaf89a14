"""The sub-commands, one file each: a function with the module's name.

The modules import next to nothing, so that `--help` answers at once; what a command needs, its function imports.
"""

"""The command line: a function a command, which reads options, calls one function and prints its result.

No logic of its own: the same functions are available from Python. Only this room prints. Its modules import next to
nothing, so that `--help` answers at once; what a command needs, its function imports.
"""

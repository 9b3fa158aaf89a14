"""The command line: a file a command, which reads options, calls one function and prints what it returns.

No logic of its own: what a command does can be done from Python by the same function. Only this room prints.
"""

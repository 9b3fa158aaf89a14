"""The sub-commands, some in each file: functions of their names.

The modules import next to nothing, so that `--help` answers at once; what a command needs, its function imports.
"""

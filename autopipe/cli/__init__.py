"""The command line: one file a command, each thin over the Python entry points. The only place that prints."""

"""What this machine has, and what a process tree uses of it: facts and readings, no decisions about pipelines."""

"""The costs of a configuration: trials in a process of their own, the model alone, ops and reads, predictions.

`trial/` starts, watches and ends the process in which everything is measured, and batches are verified. Most other
modules run in that process; the values that come out of it (`outcome`, `facts`) and what is computed from them
(`costs`, `bottleneck`, `stats`) import no training framework.

Nothing here chooses the next trial: `search` calls this room.
"""

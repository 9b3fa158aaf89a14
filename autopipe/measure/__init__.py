"""What a configuration costs: trials in a process of their own, the model alone, costs of ops and reads, predictions.

`trial/` starts, watches and ends the process in which everything is measured; the other modules run in it, but for
the values that come out of it (`outcome`, `ceiling`) and the cost model that is computed from them (`costs`).

Only here a training framework runs, and only in the trial's process. Nothing here decides what is tried next:
`search` calls this room.
"""

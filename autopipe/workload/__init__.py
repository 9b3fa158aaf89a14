"""What is trained: `Workload`, its sources, its ops, and the order and random numbers of its batches.

The sequence of batches is a function of workload, seed and epoch alone. So what belongs here are values and pure
functions of them, and the code that reads samples: `data/` has the sources, `ops/` has the ops, and
`plain_code` writes both as code that does not import autopipe.

Nothing here knows how batches are made: no loaders, workers, caches, devices, measurements. `pipeline` calls this room;
it imports only the bottom: `hardware`, `registry`, `values`, `frameworks`, `errors`.
"""

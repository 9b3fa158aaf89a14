"""How a workload is fed: `PipelineConfig`, and all that makes batches and trains on them as a configuration says.

`loaders/` has the loaders, one file each, and `batching/` what they share: the kernel that makes a batch, slots, the
memory cache, worker processes. `storage/` keeps samples in another form, which it makes by `batching` as well.
`devices/` places batches, and trains.
`eject/` writes a configuration as plain code. `assembly` puts a workload and a configuration together: a trial and
the user's training both go through it.

Nothing here measures, searches or knows an artifact. Training frameworks are imported at module level in `devices/`
only. `measure` calls this room, and so does the generated factory.
"""

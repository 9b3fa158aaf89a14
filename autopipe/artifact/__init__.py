"""The artifact of a search: `autopipe.json`, the generated factory, and everything that is done with them.

The artifact is data: one profile for each machine, read by pydantic, never unpickled. `schema` has its values,
`reference` says which workload it may name, `pick` takes a profile for a machine, and `factory` builds the tuned
pipeline. `codegen` writes Python files, `converting` samples, and `drift` decides whether a profile still fits.

Nothing here starts a search or formats text for people beyond error messages: `api` searches, `reports` renders.
"""

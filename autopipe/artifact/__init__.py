"""The artefact of a search: `autopipe.json`, the generated factory, and everything that is done with them.

The artefact is data: one profile for each machine, read by pydantic, never unpickled. `schema` has its values, `pin`
and `reference` say which workload it may name, and `factory` builds the tuned pipeline. What a command does with an
artefact is a module each: `checking`, `converting`, `ejecting`, `repointing`, `verifying`.

Nothing here starts a search or formats text for people beyond error messages: `api` searches, `reports` renders.
"""

"""What is kept of a search and handed back: `autopipe.json`, the generated factory, and all that is done with them.

The artefact is data: one profile for each machine, read by pydantic, never unpickled. Here are also `ap.tune`,
`ap.retune`, `ap.check`, `ap.load` and their likes: what the command line and scripts call.

Nothing here formats text for people beyond error messages: `reports` renders what is kept.
"""

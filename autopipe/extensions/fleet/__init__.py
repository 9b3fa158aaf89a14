"""The command `autopipe fleet`: what is tuned on which machines, from a folder of artefacts or a storage of studies."""

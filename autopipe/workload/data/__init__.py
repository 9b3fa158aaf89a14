"""Sources of samples: objects with a length and `read(index)`; nothing here decodes or changes a sample.

Each source is a module of its own. They keep no open file, pickle small, and read from many threads at once.
"""

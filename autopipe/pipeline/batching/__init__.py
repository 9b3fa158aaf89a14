"""The machinery that autopipe's own loaders share: filling batches, the memory they lie in, and their order.

Nothing here knows a loader's knobs or a model; a training framework is imported where a dataset is one of its own.
"""

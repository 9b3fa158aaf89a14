"""The machinery that autopipe's own loaders share: filling batches, the memory they lie in, and their order.

Nothing here knows a loader's knobs, a model or a training framework.
"""

"""The same samples, kept in another form: what can be kept (`form`), the forms, and writing and opening them.

A form is one module that registers a `Storage` (see `form`) by name. Nothing here makes batches.
"""

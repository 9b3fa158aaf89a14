"""The same samples, kept in another form: the base of forms (`form`), the forms, and writing and opening sets.

A form is one module that registers a `Storage` (see `form`) by name. Nothing here makes batches.
"""

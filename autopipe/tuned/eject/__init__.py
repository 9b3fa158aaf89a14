"""Pipelines without autopipe: the same samples and ops as a file of plain tf.data or Keras code.

`module` writes the file; `tensorflow` and `numpy` know what an op is in plain code, `listing` where samples come from.
Nothing here runs the code that it writes.
"""

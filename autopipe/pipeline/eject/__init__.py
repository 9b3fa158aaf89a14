"""Pipelines without autopipe: the same samples and ops as a file of plain tf.data or Keras code, or of an extension.

`module` writes the file, by a template of each form; ops and sources write the lines on themselves (`plain`).
Nothing here runs the code that it writes.
"""

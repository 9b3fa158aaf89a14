"""Pipelines without autopipe: the same samples and ops as a file of plain tf.data or Keras code, or of an extension.

`module` writes the file, by a template of each form; ops and sources write the lines on themselves (`plain`).
Nothing here runs the code that it writes.
"""

from __future__ import annotations

from typing import Final

from autopipe import registry

_OF_EXTENSIONS = [entry.name for entry in registry.declared("autopipe.plain_forms")]
NAMES: Final = ("tf.data", "tf.data-cache", "keras", "keras-workers", *_OF_EXTENSIONS, "directory", "fit")
"""The names of the forms of plain code; here, because `autopipe eject --help` imports nothing that writes one."""

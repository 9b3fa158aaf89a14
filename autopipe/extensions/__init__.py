"""Extensions for some users: a folder each, with its code, its command, its page and its entry points.

The core finds an extension by the entry points that pyproject.toml declares, as it finds those of other packages, and
imports none by name. An extension imports the core and no other extension. A copy of autopipe without one of these
folders works without it. Tests are in tests/extensions/NAME/.
"""

"""What only some users need: a folder each, with its code, its command, its page and what it adds to the core.

The core finds an extension by the entry points that pyproject.toml declares, as it finds those of other packages, and
imports none by name. An extension imports the core and no other extension. A copy of autopipe without one of these
folders works without what is in it. Tests are in tests/extensions/NAME/.
"""

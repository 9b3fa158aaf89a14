"""What people see: the result of a search as terminal text, as an HTML page and as JSON.

Each renderer is thin: it takes values and returns text. Figures are drawn as SVG by `svg` and `figure`. Words come
from templates at the very end, so that no code compares sentences.

Nothing here measures or decides. `cli` calls this room.
"""

"""The display of a search's result: as terminal text, as an HTML page and as JSON.

Each renderer is thin: it takes values and returns text. Pictures are drawn as SVG by `drawing`. Words come
from templates at the very end, so that no code compares sentences. The room is not called `report`, because a
submodule of that name would hide the public function `ap.report`.

Nothing here measures or decides. `api` and `cli` call this room.
"""

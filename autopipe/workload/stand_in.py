"""An attribute of one object that something else stands in for, for as long as a block lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def standing_in(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Have `value` be the attribute; at last it is what the object's owner had set, or else its class's.

    It is put past what Keras does when an attribute is set, which is to keep the books of layers and variables.
    """
    own, unset = vars(owner), object()
    before = own.get(name, unset)
    own[name] = value
    try:
        yield
    finally:
        if before is unset:
            del own[name]
        else:
            own[name] = before

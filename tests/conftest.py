"""What every test shares. Fixtures that only one folder needs belong in that folder's own conftest.py."""

from __future__ import annotations

import os

# Before any test imports TensorFlow, here and in the child processes that tests start: no start-up chatter, and two
# pytest workers on two cores do not each claim both for the arithmetic of one op.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

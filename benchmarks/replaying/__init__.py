"""Recorded tables and searches over them. They share the made measurements of the tests, which lie at the top."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

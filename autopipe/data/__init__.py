"""Where samples come from: objects with a length and `read(index)`; nothing here decodes or changes a sample.

Each source is a module of its own. They keep no open file, pickle small, and read from many threads at once.
"""

from autopipe.data.arrays import Arrays
from autopipe.data.hdf5 import HDF5
from autopipe.data.hugging_face import HuggingFace
from autopipe.data.image_folder import ImageFolder
from autopipe.data.image_pairs import ImagePairs
from autopipe.data.npz import NPZ
from autopipe.data.parquet import Parquet
from autopipe.data.table import Table
from autopipe.data.tfds import TFDS
from autopipe.data.tfrecords import TFRecords
from autopipe.errors import DataWarning

__all__ = [
    "HDF5",
    "NPZ",
    "TFDS",
    "Arrays",
    "DataWarning",
    "HuggingFace",
    "ImageFolder",
    "ImagePairs",
    "Parquet",
    "TFRecords",
    "Table",
]

"""The ops: one concept a file, each with its NumPy/OpenCV half and its TensorFlow half side by side.

TensorFlow is imported inside the TensorFlow halves only, so that worker processes start without it.
"""

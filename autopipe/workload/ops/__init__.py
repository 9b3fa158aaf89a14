"""The ops: what is done to a sample, by NumPy and OpenCV. No framework is imported here: workers start quickly."""

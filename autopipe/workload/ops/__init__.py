"""The ops on samples, by NumPy and OpenCV. No framework is imported here: workers start quickly."""

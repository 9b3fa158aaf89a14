"""Plain code for Grain in `autopipe eject`. To run, the code needs Grain; to write it, nothing is needed."""

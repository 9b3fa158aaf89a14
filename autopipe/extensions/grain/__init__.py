"""The loader `ap.Grain`, and plain code for Grain in `autopipe eject`. It needs the extra `grain`."""

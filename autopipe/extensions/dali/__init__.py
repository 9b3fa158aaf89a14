"""The loader `ap.Dali`, which decodes by NVIDIA DALI, and the search space `dali`. It needs the extra `dali`."""

"""Windows of rasters: satellite scenes, microscope slides."""

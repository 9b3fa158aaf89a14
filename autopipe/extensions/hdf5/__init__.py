"""The source `ap.HDF5`: samples that are rows of datasets in an HDF5 file. It needs the extra `hdf5`."""

"""The loader `ap.Ray`, whose workers are on a Ray cluster, and `autopipe convert --ray`. It needs the extra `ray`."""

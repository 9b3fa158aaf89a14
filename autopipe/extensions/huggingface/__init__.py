"""The sources `ap.HuggingFace` and `ap.Parquet`. They need the extra `hf`."""

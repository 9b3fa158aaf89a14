"""Data and converted sets behind URLs such as s3://bucket/photos, through fsspec. It needs the extra `remote`."""

"""The search: which configuration is fastest, found with few trials and proved. Nothing here runs a trial itself."""

"""The loaders: one file is one loader with its own knobs. They are found by looking into this package.

Training frameworks are imported when a loader is opened, never when its knobs are read.
"""

"""The command `autopipe diagnose` and the callback `ap.Diagnose`: whether a training waits for data, and how long."""

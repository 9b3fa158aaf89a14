"""The command `autopipe scale`: whether another device pays, measured as far as there are devices, and predicted."""

"""This machine: cores and memory that this process may use, GPUs, disks, other processes.

At the bottom of the layers, because reading files, making batches and measuring all ask it. It knows nothing of
workloads; it reads /proc, /sys, control groups and NVML, and returns values.
"""

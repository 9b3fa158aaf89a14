"""Measuring, inside the process of a trial: it trains for a few seconds through the path that the user's training
takes.
"""

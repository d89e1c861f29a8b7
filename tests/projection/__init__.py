"""Projection to the screen."""

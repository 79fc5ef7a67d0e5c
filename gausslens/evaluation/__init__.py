"""Measuring a trained network: its images and references, the measures, and the run that keeps them."""

"""Measures: functions from denoisers and images to numbers with counts and intervals."""

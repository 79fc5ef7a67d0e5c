"""Monitoring a training run: is it still learning the law of the images, or already the images?"""

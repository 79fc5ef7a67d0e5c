"""The audit: is a model copying its training images?"""

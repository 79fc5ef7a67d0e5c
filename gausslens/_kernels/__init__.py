"""Fused kernels, tiles and CUDA graphs: private."""

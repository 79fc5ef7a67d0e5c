"""Reports: figures as plain numbers and pictures, drawn on one self-contained page and as SVG files for papers."""

from ..config import Images
from .figures import (
    Axis,
    ClaimRow,
    CurveFigure,
    Figure,
    HeatMap,
    ImageGrid,
    NoiseSlider,
    Series,
    Table,
    Threshold,
)
from .pages import Page, Section
from .rendering import render
from .saving import render_svgs, save_report, save_svg

__all__ = [
    "Axis",
    "ClaimRow",
    "CurveFigure",
    "Figure",
    "HeatMap",
    "ImageGrid",
    "Images",
    "NoiseSlider",
    "Page",
    "Section",
    "Series",
    "Table",
    "Threshold",
    "render",
    "render_svgs",
    "save_report",
    "save_svg",
]

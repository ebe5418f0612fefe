"""The trace report: one HTML file without scripts, made of figures that Spark has worked out.

Nothing here knows Spark. Everything that comes from a log goes through ``text.escape``.
"""

from nsqsmart.spark.jobs.report.figures import Figures
from nsqsmart.spark.jobs.report.page import render

__all__ = ["Figures", "render"]

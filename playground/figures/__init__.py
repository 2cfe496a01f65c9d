"""Figures for cards, exports and reports: matplotlib figures of plain numbers.

No module uses pyplot, and only the export and the report import torch. No state is kept between
calls.
"""

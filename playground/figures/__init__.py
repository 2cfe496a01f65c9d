"""Figures for cards, reports and files: matplotlib figures of plain numbers.

No module uses pyplot or imports torch. No state is kept between calls.
"""

"""Figures for cards, exports and reports: plain numbers in, matplotlib figures out. No pyplot, no torch, nothing kept between calls."""

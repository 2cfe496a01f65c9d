"""Lessons: a tour of eight stops whose questions are answered by measuring, and well-known mistakes to be found on a copy of the model.

tour.py        what each stop trains, asks and accepts       measuring.py   what is measured on its runs
mistakes.py    lines of the real source, written wrong       broken.py      copies of the model with such a line
classroom.py   who waits for what, and for how long          work.py        the process that measures
"""

"""Define the lessons: eight exercises answered by measurement, and known bugs to find.

tour.py        the runs, the question and the accepted answers of each lesson
measuring.py   the measurements on the runs of a lesson
mistakes.py    known bugs, each as one changed line of the source
broken.py      copies of the model that contain such a bug
classroom.py   the queue of measurements, with their limits and timeouts
work.py        the entry point of the measurement process
"""

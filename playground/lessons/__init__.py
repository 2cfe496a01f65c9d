"""The lessons: exercises answered by measurement, and known bugs to find.

lessons.py         the experiment, the question and the accepted answers of each lesson
measurements.py    the measurements on the runs of a lesson
history_measurements.py  those of the lessons from recurrent networks to the transformer
interpretability_measurements.py  those of the lessons on the inside of a model
pretrained_measurements.py  those of the lessons on a pretrained model
trained_run.py     a finished run of a lesson, for the measurements
bugs.py            known bugs, each as one changed line of the source (bugs.toml)
bug_injection.py   copies of the model that contain such a bug
bug_comparison.py  trains a copy with a bug and a correct copy, and compares them
classes.py         the classes of teachers, with the guesses of their pupils
service.py         the queue of measurements, with their limits and timeouts
tasks.py           the entry point of the measurement process
"""

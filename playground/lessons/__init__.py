"""The lessons: exercises answered by measurement, and known bugs to find."""

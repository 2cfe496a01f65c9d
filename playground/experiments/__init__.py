"""Define and run experiments, length generalization tests and replications, without torch."""

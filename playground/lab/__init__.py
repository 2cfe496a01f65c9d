"""Floor 7: change one thing, train both, see what it bought. Experiments, answers by length, published claims.

Importing this floor loads no torch: runs train in their workers, and models are asked in the process that looks into them.
"""

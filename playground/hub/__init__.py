"""A checkpoint on the Hugging Face Hub: what is published, the card, push and pull, the gallery. Importing this alone loads nothing."""

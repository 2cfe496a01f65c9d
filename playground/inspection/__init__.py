"""Floor 5: looking into a trained model, and proving what is seen by changing it. Importing this alone loads no torch.

Read subject (a model with its task), components (its parts, and the one way to look in and to intervene), recording and
steps (where heads look), heads (what they look like), ablation and patching (what they are for), lens (what each layer and
part says), walk (every tensor of one sequence); embeddings, masks and sizes stand by themselves.
"""

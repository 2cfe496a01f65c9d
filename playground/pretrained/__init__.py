"""Pretrained models of transformers, which are loaded from the Hub or a folder, and never trusted.

    loading/      names, download, cache, checks of the files, pipelines in memory
    inference     fill-mask and text generation
    next_token    the next token of a prompt: logits, temperatures, attention sinks
    benchmark/    a checkpoint, pretrained models and baselines on the same examples
    attention/    attention of a pretrained model on a prompt, and of an encoder-decoder
    finetuning/   training a pretrained model on the task of a checkpoint
    jobs          the queue and the process of all of these

The package knows checkpoints and tasks, but no run and no page. Importing it, or `jobs`, loads
neither torch nor transformers; each kind of job imports its module when the first one runs.
"""

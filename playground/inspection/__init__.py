"""Inspection of trained models, and interventions that test what it shows.

inspected_model            a model with its task, and a sequence with its activations
hooks                      the components of a model; hooks that record or replace their outputs
attention_recording        attention weights of a batch
attention_sinks            when a token with much attention is a sink
head_patterns              attention patterns of the heads
cross_attention_alignment  how closely cross-attention follows the alignment of source and target
ablation                   effects of components, measured by ablation
activation_patching        effects of heads, measured by activation patching
induction                  prefix-matching and copying scores of decoder-only models
probes                     linear probes of the encoder, with a control task
logit_lens                 logit lens and direct logit attribution
contributions              what each sublayer adds to the residual stream
forward_trace              every tensor of one forward pass
views/                     the views of the Inspect tab
"""

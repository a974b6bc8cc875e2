#!/usr/bin/env python3
"""generate() of transformers, with random weights: greedy, with a cache that grows, and beams."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=2048, n_positions=256, n_embd=256, n_layer=4, n_head=4, bos_token_id=None,
                        eos_token_id=None)
    net = GPT2LMHeadModel(config).cuda().eval()
    words = torch.randint(2048, (4, 12)).cuda()
    for beams in (1, 1, 3):
        said = net.generate(words, attention_mask=torch.ones_like(words), max_new_tokens=80, do_sample=False,
                            num_beams=beams, pad_token_id=0)
        for row in said.tolist():
            print(beams, *row)


main()

#!/usr/bin/env python3
"""A decoder of transformers with random weights: prompts are read, then words generated. Arguments: layers, width."""
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402


def main():
    layers, width = map(int, sys.argv[1:3] or (2, 256))
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=4096, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
                         num_attention_heads=width // 64, max_position_embeddings=2048, bos_token_id=None, eos_token_id=None,
                         pad_token_id=0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        net = LlamaForCausalLM(config).eval()
        words = torch.randint(4096, (4, 1024))
    torch.cuda.synchronize()
    begun = time.perf_counter()
    with torch.no_grad():
        for _ in range(6):
            print("prompts", net(words, use_cache=False).logits.float().sum().item().hex())
    for row in net.generate(words[:, :64], attention_mask=torch.ones_like(words[:, :64]), max_new_tokens=24,
                            do_sample=False).tolist():
        print("words", *row)
    torch.cuda.synchronize()
    print(f"stepping took {time.perf_counter() - begun:.4f} s")


main()

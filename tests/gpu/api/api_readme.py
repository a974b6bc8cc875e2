"""The examples of docs/api.md for Python, with PyTorch."""
import os
import re

from api_common import expect, torch

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    with open(os.path.join(HERE, "..", "..", "..", "docs", "api.md"), encoding="utf-8") as file:
        examples = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
    expect(len(examples) == 5, "five examples")
    for text in examples:
        if "memory_place" in text: # of another setting
            continue
        exec(text, {"fill": lambda parts: None, "step": lambda *parts: sum(part.sum() for part in parts)})
        torch.cuda.synchronize()
    print(len(examples), "examples run")


main()

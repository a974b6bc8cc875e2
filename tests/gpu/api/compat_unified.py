"""allograft.compat.unified_memory with PyTorch: a GPT larger than ALLOGRAFT_LIMIT, in a pool of managed memory. It is
trained for some steps, and between them moved to the host and back and advised; its losses are those that a process
without the library has with the net in device memory.

usage: compat_unified.py [plain]     plain: the losses alone, without the library
"""
import os
import subprocess
import sys

from api_common import Gpt, expect, prepare, refused, torch

STEPS, MOVE_EVERY = 24, 6


def make():
    torch.manual_seed(0)
    return Gpt(words=8192, width=2048, heads=16, length=64, layers=8).eval()  # without dropout


def train(net, between):
    """The losses of all steps, with all digits. Only vectors are trained: their gradients are small."""
    trained = []
    for parameter in net.parameters():
        parameter.requires_grad_(parameter.dim() == 1)
        if parameter.dim() == 1:
            trained.append(parameter)
    expect(len(trained) > 10, "there are vectors to train")
    optimizer = torch.optim.SGD(trained, lr=0.05)
    generator, losses = torch.Generator().manual_seed(1), []
    for step in range(STEPS):
        if step % MOVE_EVERY == MOVE_EVERY - 1:
            between(net)
        text = torch.randint(0, net.words, (2, net.length + 1), generator=generator).cuda()
        optimizer.zero_grad(set_to_none=True)
        logits = net(text[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, net.words).float(), text[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    expect(len(set(losses)) > STEPS // 2, "it is trained")
    return losses


def plain():
    """The losses of a process without the library."""
    env = {name: value for name, value in os.environ.items()
           if name != "LD_PRELOAD" and not name.startswith("ALLOGRAFT_")}
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "plain"], env=env, stdout=subprocess.PIPE,
                          universal_newlines=True, check=False)
    expect(done.returncode == 0, f"the process without the library: {done.returncode}")
    return done.stdout.split()


def limit_bytes():
    text = os.environ.get("ALLOGRAFT_LIMIT", "")
    return int(text[:-3]) << 30 if text.endswith("GiB") else 0


def main():
    from allograft.compat import unified_memory as um

    prepare()
    wanted, limit = plain(), limit_bytes()
    try:
        pool = um.create_unified_mempool()
    except um.UnifiedMemoryUnsupportedError as error:
        print(error)
        raise SystemExit(77) from None
    net = make()
    size = sum(p.numel() * p.element_size() for p in net.parameters())
    if limit and "allograft" in os.environ.get("LD_PRELOAD", ""):
        expect(size > limit, f"the net has {size} bytes, the limit is {limit}")
        refused(torch.cuda.OutOfMemoryError, lambda: torch.empty(size, dtype=torch.uint8, device="cuda"))
    with torch.cuda.use_mem_pool(pool):
        net.cuda()
    addresses = [p.data_ptr() for p in net.parameters()]
    freed = []

    def move(net):
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        for device in (-1, 0):
            um.advise_managed_module_parameters_preferred_location(net, device=device)
            expect(um.prefetch_managed_module_parameters(net, device=device) == size, f"bytes moved to {device}")
            torch.cuda.synchronize()
            if device < 0:
                freed.append(torch.cuda.mem_get_info()[0] - before)
        weight = next(p for p in net.parameters() if p.dim() == 2)
        um.prefetch_managed_tensor(weight, device=-1)
        um.advise_managed_tensor_preferred_location(weight, device=-1)
        um.advise_managed_tensor_accessed_by(weight, device=0)  # read over the bus from now on
        refused(RuntimeError, lambda: um.advise_managed_tensor_accessed_by(weight, device=-1))

    losses = train(net, move)
    expect(losses == wanted, f"losses: {[pair for pair in zip(losses, wanted) if pair[0] != pair[1]][:3]}")
    expect(addresses == [p.data_ptr() for p in net.parameters()], "addresses stay")
    print(f"{size} bytes{', ' + str(limit) + ' allowed' if limit else ''}, there and back {len(freed)} times, "
          f"{STEPS} losses equal; {max(freed)} bytes were free meanwhile")


if "plain" in sys.argv[1:]:
    torch.use_deterministic_algorithms(True)
    print("\n".join(train(make().cuda(), lambda net: None)))
else:
    main()

"""A module in allograft.unified_mempool(): offloaded to the host, brought back, its graph right all the while."""
from api_common import Gpt, allograft, expect, prepare, refused, torch


def main():
    prepare()
    supported, reason = allograft.managed_support(0)
    if not supported:
        print(reason)
        raise SystemExit(77)
    torch.manual_seed(0)
    pool = allograft.unified_mempool()
    expect(pool is allograft.unified_mempool("cuda:0"), "one pool for each device")
    net = Gpt(words=8192, width=768, heads=12, layers=12)
    net.head.weight = net.token.weight  # tied
    with torch.cuda.use_mem_pool(pool):
        net.cuda()
    net.eval()
    parameters = sum(p.numel() * p.element_size() for p in net.parameters())
    buffers = sum(b.numel() * b.element_size() for b in net.buffers())
    text = torch.randint(0, net.words, (1, net.length), device="cuda")
    with torch.no_grad():
        for _ in range(3):
            wanted = net(text).clone()
        graph = allograft.Graph()
        with graph.capture():
            logits = net(text)
            refused(allograft.Capturing, lambda: allograft.prefetch_module(net, "cpu"))
            refused(allograft.Capturing, lambda: allograft.advise_module(net, "cpu"))
    addresses = [p.data_ptr() for p in net.parameters()]
    free_before = torch.cuda.mem_get_info()[0]
    for device in ("cpu", "cuda", -1, torch.device("cuda", 0)):
        expect(allograft.prefetch_module(net, device) == parameters, f"bytes of a prefetch to {device}")
        torch.cuda.synchronize()
        if device == "cpu":
            freed = torch.cuda.mem_get_info()[0] - free_before
        logits.zero_()
        graph.replay()
        expect(torch.equal(logits, wanted), f"logits after a prefetch to {device}")
    expect(addresses == [p.data_ptr() for p in net.parameters()], "addresses stay")
    expect(allograft.prefetch_module(net, "cuda", include_buffers=True) == parameters + buffers, "with buffers")
    expect(allograft.advise_module(net, "cpu", accessed_by="cuda") == parameters, "bytes of advice")
    weight = net.head.weight
    size = weight.numel() * weight.element_size()
    expect(allograft.prefetch_tensor(weight, "cpu") == size, "a tensor")
    expect(allograft.prefetch_tensor(weight.data[:10], "cuda") == 10 * size // len(weight), "a part of a tensor")
    expect(allograft.advise_preferred_location(weight, "cuda") == size, "preferred location")
    expect(allograft.advise_accessed_by(weight, 0) == size, "accessed by")
    graph.replay()
    expect(torch.equal(logits, wanted), "logits at last")
    print(f"{parameters} bytes there and back, {len(addresses)} parameters; {freed} bytes were free meanwhile")


main()

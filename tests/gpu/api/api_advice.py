"""Advice on what cudaMalloc gives under ALLOGRAFT_POLICY=managed: of every size it is taken, or refused with the remedy;
after the first advice it is taken of every size."""
import ctypes

from api_common import allograft, expect, prepare, refused, torch

SIZES = (512, 4096, 1 << 20, 16 << 20, 32 << 20, 40 << 20)
cuda = ctypes.CDLL("libcuda.so.1")


class Block:
    """Memory of cuMemAlloc, as an array."""

    def __init__(self, size):
        address = ctypes.c_uint64()
        expect(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0, f"{size} bytes")
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address.value, False), "version": 3}
        self.address = address

    def free(self):
        expect(cuda.cuMemFree_v2(self.address) == 0, "a free")


def main():
    prepare()
    torch.cuda.synchronize()
    blocks = [Block(size) for size in SIZES]
    if not allograft.is_preloaded():
        refused(allograft.InvalidArgument, lambda: allograft.advise_preferred_location(blocks[0], 0))
        print("not managed, as natively")
        return
    n_refused = 0
    for block, size in zip(blocks, SIZES):
        expect(allograft.advise_preferred_location(block, 0) == size, "as it is anyhow")
        expect(allograft.advise_accessed_by(block, 0) == size, "as it is anyhow")
        try:
            expect(allograft.advise_preferred_location(block, "cpu") == size, "on the host")
        except allograft.Unsupported as error:
            expect("ALLOGRAFT_MANAGED_BACKEND=plain" in str(error), str(error))
            n_refused += 1
        expect(allograft.prefetch_tensor(block, "cpu") == size and allograft.prefetch_tensor(block, 0) == size, "moved")
    torch.cuda.synchronize()
    for block in blocks:
        block.free()
    for size in SIZES:
        block = Block(size)
        expect(allograft.advise_preferred_location(block, "cpu") == size, f"{size} bytes after the first advice")
        expect(allograft.advise_accessed_by(block, 0) == size, f"{size} bytes mapped")
        block.free()
    print(f"{len(SIZES)} sizes, advice on {n_refused} refused before the first")


main()
